"""The exit code of each error class. A subclass without an entry has the code of its nearest parent."""

from __future__ import annotations

from ..state.errors import (
    AccessDenied,
    BatchTooLarge,
    CorruptData,
    Difference,
    Fenced,
    IllegalTransition,
    InvalidRequest,
    LogGap,
    ObjectExists,
    ObjectNotFound,
    OffsetOutOfRange,
    PlannedRangeLost,
    SegmentExpired,
    TierstateError,
    TierStateLost,
    Unavailable,
    UpgradeNeeded,
)

DONE = 0
FINDING = 1
USAGE = 2
UNAVAILABLE = 3
CORRUPT = 4
REFUSED = 5
BUG = 70
INTERRUPTED = 130

OF_ERROR: dict[type[TierstateError], int] = {
    Difference: FINDING,
    InvalidRequest: USAGE,
    ObjectNotFound: USAGE,  # reaches the top only when the user named the object
    Unavailable: UNAVAILABLE,
    CorruptData: CORRUPT,
    LogGap: CORRUPT,
    IllegalTransition: CORRUPT,
    TierStateLost: CORRUPT,
    UpgradeNeeded: REFUSED,
    OffsetOutOfRange: REFUSED,
    AccessDenied: REFUSED,
    BatchTooLarge: REFUSED,
    Fenced: REFUSED,
    ObjectExists: REFUSED,
    SegmentExpired: REFUSED,
    PlannedRangeLost: REFUSED,
}


def exit_code(error: BaseException) -> int:
    """Return the exit code of a process that ``error`` ends: ``BUG`` if the table has no entry for its class."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return next((OF_ERROR[kind] for kind in type(error).__mro__ if kind in OF_ERROR), BUG)
