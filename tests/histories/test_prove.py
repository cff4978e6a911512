"""The ledger of the proof counts a history only for the code that ran it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.histories import prove

ROOT = prove.ROOT


@pytest.fixture(scope="module")
def files() -> list[Path]:
    return prove.proven_files()


def test_the_digest_covers_every_package_that_a_history_imports(files: list[Path]) -> None:
    packages = {file.relative_to(ROOT).parts[0] for file in files}
    assert packages >= {"state", "rules", "schemas", "broker", "storage", "log", "leader", "follower", "tests"}
    assert {ROOT / "rules" / "expire.py", ROOT / "tests" / "histories" / "world.py"} <= {*files}
    assert {*(ROOT / "schemas").glob("*.avsc")} <= {*files}


def test_another_rule_is_another_proof(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = prove.code_digest(files)
    for file in files:
        copy = tmp_path / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    monkeypatch.setattr(prove, "ROOT", tmp_path)
    copies = [tmp_path / file.relative_to(ROOT) for file in files]
    assert prove.code_digest(copies) == before
    rule = tmp_path / "rules" / "expire.py"
    rule.write_text(rule.read_text() + "\n# changed\n")
    assert prove.code_digest(copies) != before
