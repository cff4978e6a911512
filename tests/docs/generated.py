"""Parts of a page that are made from code: what stands between ``<!-- NAME -->`` and ``<!-- /NAME -->``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def shown(page: str, name: str) -> str:
    """What the page has there. Raises ValueError when it has no such place."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"the page has no {begin.strip()} … {end}")
    return page.partition(begin)[2].partition(end)[0]


def with_parts(page: str, parts: Mapping[str, str]) -> str:
    """The page with these parts as they are now."""
    for name, text in parts.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        page = page.replace(f"{begin}{shown(page, name)}{end}", f"{begin}{text}{end}")
    return page


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """In Markdown."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]]) + "\n"
