"""Counters of a proxy's work, for its metrics and its access log."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from .codes import CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR, OFFSET_OUT_OF_RANGE, POLICY_VIOLATION

CODES = (OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, POLICY_VIOLATION, KAFKA_STORAGE_ERROR)


@dataclass(slots=True)
class Counts:
    """Counters of one process. Only its event loop changes them. ``refused``: refused requests by API name."""

    connections: int = 0
    turned_away: int = 0
    malformed: int = 0
    passed_bytes: int = 0
    filled_bytes: int = 0
    passed: int = 0
    filled: int = 0
    not_yet: int = 0
    errors: Counter[int] = field(default_factory=lambda: Counter(dict.fromkeys(CODES, 0)))
    refused: Counter[str] = field(default_factory=Counter)
