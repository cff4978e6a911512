"""`docs/tour.md`, typed from top to bottom in an empty folder: what is printed is what the page shows."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import Block, executed
from tests.docs.page_shell import PageShell, difference
from tierstate.sandbox.ports import PortLease

pytestmark = [pytest.mark.kafka, pytest.mark.extended, pytest.mark.timeout(600)]

BLOCKS = executed("docs/tour.md", __file__)
RECORDS = frozenset({"60000", "60,000"})
FILES = {"state_dir": "tierstate.toml", "import json": "produce.py"}
"""The name of a file on the page, by the begin of its text."""
PROGRAMS = {"from tierstate import": "60000\n", "import tierstate.spark": "|   60000|          0|      59999|\n"}
"""The last line that a program prints, by the begin of its text, as the page's comments show it."""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[PageShell]:
    """Yield a shell with ports of this test alone: another process of this machine may use those of the page."""
    opened = PageShell(tmp_path / "tour", {"/tmp/tour": str(tmp_path / "tour")})
    ports = PortLease()
    for name, section in {"127.0.0.1:9192": "PROXY", "127.0.0.1:8080": "GATEWAY"}.items():
        address = f"127.0.0.1:{ports.take()}"
        opened.meant[name] = address
        opened.variables[f"TIERSTATE_{section}__LISTEN"] = address
    opened.variables["TIERSTATE_MANAGEMENT__LISTEN"] = "127.0.0.1:0"
    yield opened
    opened.close()
    opened.type("tierstate sandbox down --dir play")
    ports.release()


def test_what_is_typed_prints_what_the_page_shows(shell: PageShell) -> None:
    for block in BLOCKS:
        if block.kind == "console":
            types(shell, block)
        else:
            (begin,) = [begin for begin in (*FILES, *PROGRAMS) if block.code.startswith(begin)]
            file = shell.folder / FILES.get(begin, "program.py")
            file.write_text(shell.here(block.code))
            if begin in PROGRAMS:
                done = shell.type(f"{sys.executable} program.py")
                assert done.returncode == 0, done.stderr
                assert PROGRAMS[begin] in done.stdout


def types(shell: PageShell, block: Block) -> None:
    for command, lines in block.examples():
        if command.startswith("tierstate sandbox up"):
            shell.meant |= sandbox(shell, command, lines)
            continue
        if "rsm-manifest" in command:
            command = f"tierstate dump-log {segment(shell)} | tail -n 1"
        shell.shows(command, lines, RECORDS)


def sandbox(shell: PageShell, command: str, lines: list[str]) -> dict[str, str]:
    """Start the sandbox. Return the address on the page with the one on this machine."""
    done = shell.type(command)
    assert done.returncode == 0, done
    assert not difference(lines, shell.there(done.stdout).splitlines(), done.stderr.splitlines())
    (there,), (here,) = ({*re.findall(r"127\.0\.0\.1:\d+", text)} for text in ("\n".join(lines), done.stdout))
    return {there: here}


def segment(shell: PageShell) -> Path:
    """Return the path of a manifest of this run."""
    return sorted((shell.folder / "bucket").rglob("*.rsm-manifest"))[2].relative_to(shell.folder)


@pytest.mark.parametrize(
    ("page", "printed", "differs"),
    [
        ("a  1", "a 22", ""),
        ("a  60000", "a  59999", "the page has"),
        ("a", "a\nb", "does not have: b"),
        ("a\nb", "a", "the page has: b"),
        ("a\n…\nc", "a\nb\nb\nc", ""),
        ("a 1\na 2", "a 1", ""),
        ("a 1", "a 1\na 2", ""),
        ("x-…", "x-123 and more", ""),
        ("… [info     ] copied n=1", "T [info     ] other\nT [info     ] copied n=7", ""),
        (f"{'a' * 22}\n{'a' * 22} {'b' * 22}", f"{'1' * 22}\n{'1' * 22} {'2' * 22}", ""),
        (f"{'a' * 22}\n{'a' * 22} {'b' * 22}", f"{'1' * 22}\n{'2' * 22} {'2' * 22}", "where another id"),
    ],
)
def test_a_line_that_differs_is_found(page: str, printed: str, differs: str) -> None:
    line = difference(page.splitlines(), printed.splitlines(), kept=RECORDS)
    assert differs in line
    assert bool(line) == bool(differs)
