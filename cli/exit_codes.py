"""The exit code of each error class. A subclass without an entry has the code of its nearest parent."""

from __future__ import annotations

from ..state import errors

DONE = 0
FINDING = 1
USAGE = 2
UNAVAILABLE = 3
CORRUPT = 4
REFUSED = 5
BUG = 70
INTERRUPTED = 130

OF_ERROR: dict[type[errors.TierstateError], int] = {
    errors.Difference: FINDING,
    errors.InvalidRequest: USAGE,
    errors.ObjectNotFound: USAGE,  # reaches the top only when the user named the object
    errors.Unavailable: UNAVAILABLE,
    errors.CorruptData: CORRUPT,
    errors.LogGap: CORRUPT,
    errors.IllegalTransition: CORRUPT,
    errors.TierStateLost: CORRUPT,
    errors.UpgradeNeeded: REFUSED,
    errors.OffsetOutOfRange: REFUSED,
    errors.AccessDenied: REFUSED,
    errors.BatchTooLarge: REFUSED,
    errors.Fenced: REFUSED,
    errors.ObjectExists: REFUSED,
    errors.SegmentExpired: REFUSED,
    errors.PlannedRangeLost: REFUSED,
}


def exit_code(error: BaseException) -> int:
    """Return the exit code of a process that ``error`` ends: ``BUG`` if the table has no entry for its class."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return next((OF_ERROR[kind] for kind in type(error).__mro__ if kind in OF_ERROR), BUG)
