"""Malformed UTF-8, as Java's decoder reads it."""

from __future__ import annotations

import re

_MALFORMED_SURROGATE = re.compile(b"\xed[\xa0-\xbf][\x80-\xbf]")


def java_text(value: bytes) -> str:
    """The text of ``value``, with U+FFFD for what is malformed: half a surrogate pair is one of them, not three."""
    return _MALFORMED_SURROGATE.sub(b"\xef\xbf\xbd", value).decode("utf-8", "replace")
