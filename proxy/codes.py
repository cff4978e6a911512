"""Kafka's error codes for tierstate's errors, chosen by the reaction of clients, and the counters of a proxy's work.

56  KAFKA_STORAGE_ERROR     every client retries (observed: REQUEST_TIMED_OUT, 7, ended Java's consumer)
2   CORRUPT_MESSAGE         the client reports it to the application: it needs an operator
44  POLICY_VIOLATION        for DeleteRecords of a tiered topic: `tierstate delete-records` does it instead
1   OFFSET_OUT_OF_RANGE     the consumer applies ``auto.offset.reset``: only if the log over both tiers lacks the offset
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ..state.errors import (
    CorruptData,
    IllegalTransition,
    LogGap,
    ObjectNotFound,
    OffsetOutOfRange,
    TierstateError,
    TierStateLost,
)

NONE = 0
OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
POLICY_VIOLATION = 44
KAFKA_STORAGE_ERROR = 56

_TABLE: tuple[tuple[type[TierstateError], int], ...] = (
    (OffsetOutOfRange, OFFSET_OUT_OF_RANGE),
    (CorruptData, CORRUPT_MESSAGE),
    (ObjectNotFound, CORRUPT_MESSAGE),
    (LogGap, CORRUPT_MESSAGE),
    (IllegalTransition, CORRUPT_MESSAGE),
    (TierStateLost, CORRUPT_MESSAGE),
)
"""Codes by error type. Any other error is 56: it may be over when the client retries, and nothing is skipped. This
includes UnknownTopic: the broker answered for the topic, so the proxy's principal probably lacks the permission."""


def code_of(error: BaseException) -> int:
    """Return Kafka's error code for a partition whose read failed with ``error``."""
    return next((code for kind, code in _TABLE if isinstance(error, kind)), KAFKA_STORAGE_ERROR)


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
