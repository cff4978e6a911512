"""Print the table of guards, for `guards.md` next to this file: ``python -m tests.histories.guards_table > FILE``."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.histories.directed import DIRECTED
from tests.histories.guard import Guard
from tests.histories.guards import GUARDS

PAGE = Path(__file__).with_name("guards.md")
HEAD = """\
# Guards

Each guard is one function of production, without which the named history breaks a promise of
[the proof](../../docs/proof.md). Made by `python -m tests.histories.guards_table > tests/histories/guards.md`.

| guard | rule | where it is | breaks without it |
|---|---|---|---|
"""


def page() -> str:
    """Return the page in Markdown: a line for each guard, in the order of `GUARDS`."""
    return HEAD + "".join(_row(name, guard) for name, guard in GUARDS.items())


def _row(name: str, guard: Guard) -> str:
    module, _, path = guard.place.partition(":")
    where = f"[`{path}`](../../{module.replace('.', '/')}.py)"
    also = f", and {len(guard.more)} more" if guard.more else ""
    directed = DIRECTED.get(name)
    if directed is not None:
        history = f"`{directed.__name__}`"
    else:
        history = "nothing found" if guard.seed is None else f"history {guard.seed}"
        history += "" if guard.source == "disk" or guard.seed is None else f" of source {guard.source}"
    cells = (name, guard.rule.replace("*", "\\*"), where + also, history)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
