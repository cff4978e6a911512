"""The retention of the remote tier of an archive: ``expire.retention`` and ``expire.topics``."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass

from .units import parse_duration, parse_size

TOPIC, FOREVER = "topic", "forever"
UNLIMITED = -1
_NUMBER = re.compile(r"[0-9.]+")


@dataclass(frozen=True, slots=True)
class RemoteRetention:
    """A retention of the remote tier, in milliseconds and in bytes of both tiers; -1 is no limit."""

    ms: int = UNLIMITED
    bytes: int = UNLIMITED


def parse_retention(text: str) -> RemoteRetention | None:
    """Parse ``forever``, a duration as ``7y`` or a size as ``10TiB``; ``topic`` gives None: Kafka's settings decide.

    Raises ValueError for any other text. A number without a unit may mean either, and is refused.
    """
    if text == TOPIC:
        return None
    if text == FOREVER:
        return RemoteRetention()
    if not _NUMBER.fullmatch(text):
        with suppress(ValueError):
            return RemoteRetention(ms=round(parse_duration(text) * 1000))
        with suppress(ValueError):
            return RemoteRetention(bytes=parse_size(text))
    raise ValueError(f"not a retention: {text!r}; write topic, forever, a duration as 7y, or a size as 10TiB")


def parse_rule(text: str) -> tuple[re.Pattern[str], RemoteRetention | None]:
    """Parse the text ``PATTERN=RETENTION``. Raises ValueError."""
    pattern, separator, retention = text.rpartition("=")
    if not separator or not pattern:
        raise ValueError(f"not a rule: {text!r}; write PATTERN=RETENTION, as payments-.*=7y")
    try:
        return re.compile(pattern), parse_retention(retention)
    except re.error as error:
        raise ValueError(f"not a regular expression: {pattern!r}, {error}") from None
