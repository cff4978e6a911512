"""The errors of tierstate as Kafka's error codes, chosen by what clients do about them.

56  KAFKA_STORAGE_ERROR     every client asks again (observed: 7 ended Java's consumer)
2   CORRUPT_MESSAGE         reported to the application: a person must look
44  POLICY_VIOLATION        reported to a client that deletes records of a tiered topic: there is a command for that
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
"""Any other error is 56: it may be over when the client asks again, and until then nothing is skipped. This includes
UnknownTopic: the broker has just answered for the topic, so it is the proxy's own principal that may not see it."""


def code_of(error: BaseException) -> int:
    """Return Kafka's error code for a partition whose read failed with ``error``."""
    return next((code for kind, code in _TABLE if isinstance(error, kind)), KAFKA_STORAGE_ERROR)
