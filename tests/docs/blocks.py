"""Blocks of the pages for the first day: a test executes each, or a comment above it says why no test does.

    <!-- executed by tests/docs/test_tour_page.py -->
    <!-- not executed: it needs an account at AWS -->

``python -m tests.docs.blocks`` prints those that are not executed, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "docs/tour.md",
    "docs/production.md",
    "docs/operations.md",
    "docs/on-fire.md",
    "docs/disasters.md",
    "docs/upgrade.md",
    "docs/encryption.md",
    "docs/tables.md",
    "docs/spark.md",
    "docs/spark-streams.md",
    "docs/install.md",
    "docs/managed.md",
)
"""Pages that are followed command by command."""
_EXECUTED = re.compile(r"<!-- executed by (tests/\S+\.py) -->")
_NOT_EXECUTED = re.compile(r"<!-- not executed: (\S.*\S) -->")


@dataclass(frozen=True)
class Block:
    """``line``: where its fence begins. ``heading``: of its section. One of ``test`` and ``reason`` is None."""

    page: str
    line: int
    heading: str
    kind: str
    code: str
    test: str | None
    reason: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def examples(self) -> list[tuple[str, list[str]]]:
        """Return each command of a console, with the lines that the page shows below it."""
        pairs: list[tuple[str, list[str]]] = []
        for line in self.code.splitlines():
            if line.startswith("$ "):
                pairs.append((line[2:], []))
            else:
                pairs[-1][1].append(line)
        return pairs

    def commands(self) -> list[str]:
        """Return the lines of a script; one that ends in a backslash goes on in the next."""
        joined = self.code.replace("\\\n", " ")
        return [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def blocks_of(page: str) -> Iterator[Block]:
    """Yield all blocks of a page, also those that are indented and have no fence: their kind is ``indented``."""
    lines = (ROOT / page).read_text().splitlines()
    heading, at = "", 0
    while at < len(lines):
        line, before = lines[at], lines[at - 1] if at else ""
        if title := re.match(r"#+ (.+)", line):
            heading = title[1]
        if line.startswith("```"):
            end = lines.index("```", at + 1)
            test, reason = _EXECUTED.fullmatch(before), _NOT_EXECUTED.fullmatch(before)
            code = "\n".join(lines[at + 1 : end]) + "\n"
            yield Block(page, at + 1, heading, line[3:], code, test and test[1], reason and reason[1])
            at = end
        elif line.startswith("    ") and not before:
            yield Block(page, at + 1, heading, "indented", line, None, None)
        at += 1


def executed(page: str, test: str) -> list[Block]:
    """Return the blocks of a page that this test file executes. ``test``: its ``__file__``."""
    name = str(Path(test).resolve().relative_to(ROOT))
    blocks = [block for block in blocks_of(page) if block.test == name]
    assert blocks, f"{page} has no block that {name} executes"
    return blocks


def main() -> None:
    every = [block for page in PAGES for block in blocks_of(page)]
    left = [block for block in every if block.reason]
    for block in left:
        print(f"{block}  {block.reason}\n    {block.code.strip().splitlines()[0]}")
    print(f"{len(left)} of {len(every)} blocks are not executed")


if __name__ == "__main__":
    main()
