"""Parts of a page that are generated from code: the text between ``<!-- NAME -->`` and ``<!-- /NAME -->``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def shown(page: str, name: str) -> str:
    """Return the text of the page at this place. Raises ValueError when the page has no such place."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"the page has no {begin.strip()} … {end}")
    return page.partition(begin)[2].partition(end)[0]


def with_parts(page: str, parts: Mapping[str, str]) -> str:
    """Return the page with these parts replaced."""
    for name, text in parts.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        page = page.replace(f"{begin}{shown(page, name)}{end}", f"{begin}{text}{end}")
    return page


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]]) + "\n"
