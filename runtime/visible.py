"""Make text from strangers safe to show: characters that would move, hide or reorder letters are written as escapes.

Names of groups, users and topics come from strangers. A terminal obeys control characters, and everything that draws
text obeys bidirectional ones: ``gro\\u202epuorg`` would appear as another name. The console does the same to the same
characters (`api/console/dom.js`).
"""

from __future__ import annotations

HIDDEN = frozenset(
    map(chr, [*range(0x20), *range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)])
)
"""Control characters, separators of lines and paragraphs, and characters that set the direction of text."""
_IN_LINE = {ord(each): f"\\u{ord(each):04x}" for each in HIDDEN}
_IN_TEXT = {code: shown for code, shown in _IN_LINE.items() if chr(code) not in "\t\n"}


def visible(text: str) -> str:
    """Return text of several lines. JSON stays valid and equal: such characters occur in its strings alone."""
    return text.translate(_IN_TEXT)


def visible_in_line(text: str) -> str:
    """Return the text of a cell: like `visible`, and without characters that begin another line or column."""
    return text.translate(_IN_LINE)
