"""Store programs are built once, whole or not at all, and a missing builder is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.store_programs import AZURITE, TOXIPROXY, has_installer, store_program
from tierstate.state.errors import InvalidRequest, Unavailable

WRITES = """#!/bin/sh
echo built >> "$COUNT"
printf '#!/bin/sh\\n' > "$GOBIN/server"
"""
FAILS = """#!/bin/sh
touch "$GOBIN/half"
echo "no such module" >&2
exit 1
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache; a test puts its own ``go`` on the PATH."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COUNT", str(tmp_path / "count"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    return tmp_path / "cache" / "tierstate" / "stores"


def _go(tmp_path: Path, script: str) -> None:
    file = tmp_path / "bin" / "go"
    file.write_text(script)
    file.chmod(0o755)


def test_a_program_is_built_once_a_machine(cache: Path, tmp_path: Path) -> None:
    _go(tmp_path, WRITES)
    assert store_program(TOXIPROXY) == store_program(TOXIPROXY) == cache / "toxiproxy-v2.5.0" / "server"
    assert (tmp_path / "count").read_text() == "built\n"


def test_a_built_program_needs_no_builder(cache: Path, tmp_path: Path) -> None:
    _go(tmp_path, WRITES)
    built = store_program(TOXIPROXY)
    (tmp_path / "bin" / "go").unlink()
    assert has_installer(TOXIPROXY)
    assert store_program(TOXIPROXY) == built


def test_a_failed_build_leaves_nothing_and_says_why(cache: Path, tmp_path: Path) -> None:
    _go(tmp_path, FAILS)
    with pytest.raises(Unavailable, match="no such module"):
        store_program(TOXIPROXY)
    assert [path.name for path in cache.iterdir()] == ["toxiproxy-v2.5.0.lock"]


def test_a_missing_builder_is_named(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert not has_installer(AZURITE)
    with pytest.raises(InvalidRequest, match=r"install Node\.js"):
        store_program(AZURITE)
