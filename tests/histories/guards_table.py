"""The table of guards in `docs/proof.md`.

python -m tests.histories.guards_table            # print it
python -m tests.histories.guards_table --write    # into the page
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.histories.directed import DIRECTED
from tests.histories.guards import GUARDS, Guard

PAGE = Path(__file__).parents[2] / "docs" / "proof.md"
BEGIN, END = "<!-- guards -->\n", "<!-- /guards -->"


def table() -> str:
    """In Markdown, a line a guard, in the order of `GUARDS`."""
    head = "| guard | rule | where it is | breaks without it |\n|---|---|---|---|\n"
    return head + "".join(_row(name, guard) for name, guard in GUARDS.items())


def _row(name: str, guard: Guard) -> str:
    module, _, path = guard.place.partition(":")
    where = f"[`{path}`](../{module.replace('.', '/')}.py)"
    also = f", and {len(guard.more)} more" if guard.more else ""
    directed = DIRECTED.get(name)
    if directed is not None:
        found = f"`{directed.__name__}`"
    else:
        found = "nothing found" if guard.seed is None else f"history {guard.seed}"
    cells = (name, guard.rule.replace("*", "\\*"), where + also, found)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def shown(page: str) -> str:
    """The table that a page holds."""
    return page.partition(BEGIN)[2].partition(END)[0]


def main() -> None:
    if "--write" not in sys.argv[1:]:
        print(table(), end="")
        return
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
