"""Make untrusted text safe to show: characters that would move, hide or reorder letters are replaced by escapes.

Names of groups, users and topics are untrusted. A terminal executes control characters, and every renderer applies
bidirectional ones: ``gro\\u202epuorg`` would appear as another name. The console replaces the same characters
(`api/console/dom.js`).
"""

from __future__ import annotations

HIDDEN = frozenset(
    map(chr, [*range(0x20), *range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)])
)
"""Control characters, separators of lines and paragraphs, and characters that set the direction of text."""
_IN_LINE = {ord(each): f"\\u{ord(each):04x}" for each in HIDDEN}
_IN_TEXT = {code: shown for code, shown in _IN_LINE.items() if chr(code) not in "\t\n"}


def visible(text: str) -> str:
    """Return the text with `HIDDEN` characters escaped, except tab and newline. JSON stays valid and equal."""
    return text.translate(_IN_TEXT)


def visible_in_line(text: str) -> str:
    """Return the text with all `HIDDEN` characters escaped, also tab and newline: it stays in one table cell."""
    return text.translate(_IN_LINE)
