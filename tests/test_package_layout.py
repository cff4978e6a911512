"""No other test notices a package without its link, or a file that is missing in the wheel."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.wheels import build_wheel

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {"tests", "demo", "bench", "docs", "src", "build"}


def rooms() -> set[str]:
    return {path.parent.name for path in ROOT.glob("*/__init__.py")} - OUTSIDE


def test_every_package_has_its_relative_link_and_every_link_its_package() -> None:
    links = {path.name: os.readlink(path) for path in (ROOT / "src" / "tierstate").iterdir() if path.is_symlink()}
    assert links == {name: f"../../{name}" for name in rooms() | {"__init__.py", "py.typed"}}


def test_the_import_contract_names_every_package() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = config["tool"]["importlinter"]["contracts"][0]["layers"]
    assert {name.strip() for layer in layers for name in layer.split("|")} == rooms()


def test_a_checkout_whose_links_became_files_builds_no_empty_wheel_but_says_so(tmp_path: Path) -> None:
    for name in ("setup.py", "pyproject.toml", "README.md"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "src" / "tierstate").mkdir(parents=True)
    (tmp_path / "src" / "tierstate" / "state").write_text("../../state")
    command = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", str(tmp_path / "out")]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode != 0
    assert "src/tierstate/state is a file and not a link to a folder" in done.stdout + done.stderr


def test_no_module_of_the_wheel_is_there_for_tests_alone() -> None:
    modules = {
        path.relative_to(ROOT).with_suffix("").parts: path for room in rooms() for path in (ROOT / room).rglob("*.py")
    }
    needed = imported(ROOT / "__init__.py", ("__init__",))
    needed |= imported(ROOT / "src" / "pyspark_tierstate" / "__init__.py", ())
    for name, path in modules.items():
        needed |= imported(path, name)
    started = {name for name, path in modules.items() if name[0] == "cli" or "__main__" in path.read_text()}
    assert modules.keys() - needed - started - {name for name in modules if name[-1] == "__init__"} == set()


def imported(path: Path, name: tuple[str, ...]) -> set[tuple[str, ...]]:
    """Return the modules of ours that a file may import, each as the parts of its path below the checkout."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = tuple((node.module or "").split(".")) if node.module else ()
            module = (*name[: -node.level], *base) if node.level else base[1:] if base[:1] == ("tierstate",) else None
            if module is not None:
                modules |= {module, *((*module, alias.name) for alias in node.names)}
    return modules


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(build_wheel(tmp_path_factory.mktemp("wheel")))


def test_the_wheel_holds_every_module_schema_and_asset(wheel: zipfile.ZipFile) -> None:
    expected = {"tierstate/__init__.py", "tierstate/py.typed", "pyspark_tierstate/__init__.py"}
    for room in rooms():
        for path in (ROOT / room).rglob("*"):
            if path.suffix in {".py", ".avsc", ".html", ".css", ".js", ".sha256", ".xml"}:
                expected.add(f"tierstate/{path.relative_to(ROOT)}")
    assert expected <= set(wheel.namelist()), sorted(expected - set(wheel.namelist()))
