"""Decode malformed UTF-8 as Java's decoder does."""

from __future__ import annotations

import re

_MALFORMED_SURROGATE = re.compile(b"\xed[\xa0-\xbf][\x80-\xbf]")


def java_text(value: bytes) -> str:
    """Return ``value`` as text, with U+FFFD for malformed bytes. An encoded surrogate becomes one U+FFFD, not three."""
    return _MALFORMED_SURROGATE.sub(b"\xef\xbf\xbd", value).decode("utf-8", "replace")
