"""Our errors as Kafka's error codes, by what clients do about them.

56  KAFKA_STORAGE_ERROR     asked again, by every client (7 ended Java's consumer: seen)
2   CORRUPT_MESSAGE         told to the application: a person must look
44  POLICY_VIOLATION        told to who deletes records of a tiered topic: there is a command for it
1   OFFSET_OUT_OF_RANGE     the consumer seeks by ``auto.offset.reset``: only where the logical log has no such offset
"""

from __future__ import annotations

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
"""What is in no row is 56: it may be over when the client comes again, and until then nothing is skipped. UnknownTopic,
too: the broker has just answered for it, so it is the proxy's own principal that may not see it."""


def code_of(error: BaseException) -> int:
    """Of a partition in an answer."""
    return next((code for kind, code in _TABLE if isinstance(error, kind)), KAFKA_STORAGE_ERROR)
