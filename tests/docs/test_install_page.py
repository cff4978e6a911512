"""`docs/install.md`: the wheel is built as the page says, a shell completes, and the page names no package index."""

from __future__ import annotations

import re
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, executed
from tests.docs.page_shell import PageShell
from tests.test_docs import PAGES, SOURCE
from tests.wheels import build_wheel

BUILDS, BASH, FISH = executed("docs/install.md", __file__)
INDEX = re.compile(r"""pip install (?:[^\n]*['"` ])?['"]?tierstate(?:\[|['"`]|\s|$)""", re.MULTILINE)
COMPLETE = """
source ~/.bashrc
COMP_WORDS=(tierstate des) COMP_CWORD=1
_tierstate_completion tierstate
echo "${COMPREPLY[@]}"
"""


@pytest.mark.extended
def test_the_wheel_is_built_and_is_tierstate(tmp_path: Path) -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\nwheel:")[2].splitlines()[1]
    assert BUILDS.commands() == ["make wheel"]
    assert recipe.strip() == "@$(BIN)/python -m tests.wheels dist"
    wheel = build_wheel(tmp_path)
    assert wheel.name.startswith("tierstate-")
    with zipfile.ZipFile(wheel) as archive:
        assert "tierstate/cli/main.py" in archive.namelist()


def test_a_shell_completes_after_the_pages_lines(tmp_path: Path) -> None:
    shell = PageShell(tmp_path / "home", variables={"HOME": str(tmp_path / "home")})
    for block in (BASH, FISH):
        for command in block.commands():
            done = shell.type(command)
            assert done.returncode == 0, done
    completed = shell.type(f"bash -c '{COMPLETE}'").stdout
    assert completed.split() == ["describe"]
    assert "complete " in (tmp_path / "home/.config/fish/completions/tierstate.fish").read_text()


def test_every_extra_is_on_the_page() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()
    rows = re.findall(r"^\| (`.+?`) \|", (ROOT / "docs" / "install.md").read_text(), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert extras - {"demo", "dev"} <= named


def test_no_page_says_to_install_tierstate_from_an_index() -> None:
    """The name is in no index, and anybody may register it."""
    texts = {str(page): page.read_text() for page in PAGES if page.name != "CHANGELOG.md"}
    texts |= {str(path): text for path, text in SOURCE.items()}
    assert {name for name, text in texts.items() if INDEX.search(text)} == set()


@pytest.mark.parametrize("told", ["pip install 'tierstate[lake]'", "pip install tierstate", "`pip install tierstate`"])
def test_such_a_line_is_found(told: str) -> None:
    assert INDEX.search(told)
    assert not INDEX.search('pip install "$(echo dist/tierstate-*.whl)[lake]"')
