"""Reasons why something is not done. Each has a kind that can be counted, and a sentence with numbers.

The kinds are stable names: metrics use them as labels, and `docs/reasons.md` explains each of them. Each kind is
produced on a real broker by `tests/scenarios/test_reasons.py`, except those that need thousands of elections.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..state import errors
from ..state.errors import TierstateError


class Reason(StrEnum):
    """The kinds of reasons, with their stable names."""

    ALL_COPIED = "all-copied"
    OPEN_TRANSACTION = "open-transaction"
    NOT_REPLICATED = "not-replicated"
    COPY_LAG = "copy-lag"
    NO_EPOCH = "no-epoch"
    NO_LOCAL_SEGMENT = "no-local-segment"

    ONLY_ACTIVE = "only-active"
    LOCAL_RETENTION = "local-retention"
    NOT_COPIED = "not-copied"
    TRIM_DELAY = "trim-delay"
    GROUP_HOLDS = "group-holds"
    GROUPS_UNKNOWN = "groups-unknown"
    UNCLEAN_ELECTIONS = "unclean-elections"
    OBJECTS_MISSING = "objects-missing"
    TRIM_DISABLED = "trim-disabled"

    NOTHING_REMOTE = "nothing-remote"
    RETENTION_KEEPS = "retention-keeps"
    ORDER_WAITS = "order-waits"
    ORDER_LOST = "order-lost"
    READERS_GRACE = "readers-grace"
    LATE_WRITES = "late-writes"
    LEASED = "leased"
    NOT_ARCHIVED = "not-archived"
    REMOVAL_FAILED = "removal-failed"

    PAUSED = "paused"
    DISABLED = "disabled"
    EXCLUDED = "excluded"
    REFUSED_COMPACTED = "refused-compacted"
    REFUSED_KAFKA_TIERED = "refused-kafka-tiered"
    REFUSED_INTERNAL = "refused-internal"
    REFUSED_FORMAT = "refused-format"

    DEGRADED = "degraded"
    HELD = "held"
    CONTRADICTION = "contradiction"
    LINEAGE_UNKNOWN = "lineage-unknown"
    LINEAGE_TOO_LONG = "lineage-too-long"
    NO_LOG_START = "no-log-start"
    CLOCKS_DISAGREE = "clocks-disagree"
    TIER_STATE_UNSAFE = "tier-state-unsafe"
    PREFIX_CONTESTED = "prefix-contested"
    PREFIX_UNPROVEN = "prefix-unproven"
    PREFIX_ON_TRIAL = "prefix-on-trial"
    TIER_STATE_LOST = "tier-state-lost"

    UNDECODABLE = "undecodable"
    CORRUPT_DATA = "corrupt-data"
    STORE_AWAY = "store-away"
    STORE_FULL = "store-full"
    STORE_MOVES = "store-moves"
    TIER_STATE_AWAY = "tier-state-away"
    BROKER_AWAY = "broker-away"
    ACCESS_DENIED = "access-denied"
    FENCED = "fenced"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Why:
    """A reason: one sentence with numbers (offsets, bytes, seconds, names) and, if not obvious, what would end it."""

    kind: Reason
    text: str

    def __str__(self) -> str:
        return self.text


_FAILURES: tuple[tuple[tuple[type[TierstateError], ...], Reason], ...] = (
    ((errors.Undecodable,), Reason.UNDECODABLE),
    ((errors.CorruptData, errors.ObjectNotFound), Reason.CORRUPT_DATA),
    ((errors.StorageUnavailable, errors.Throttled), Reason.STORE_AWAY),
    ((errors.StorageFull,), Reason.STORE_FULL),
    ((errors.ViewBehind, errors.PositionLost, errors.UnknownOutcome, errors.DiskFull), Reason.TIER_STATE_AWAY),
    ((errors.BrokerUnavailable,), Reason.BROKER_AWAY),
    ((errors.AccessDenied,), Reason.ACCESS_DENIED),
    ((errors.LineageTooLong,), Reason.LINEAGE_TOO_LONG),
    ((errors.Fenced,), Reason.FENCED),
    ((errors.TierStateLost,), Reason.TIER_STATE_LOST),
    ((errors.UpgradeNeeded,), Reason.DEGRADED),
)


def why_failed(error: TierstateError, times: int = 1, *, reading_tiers: bool = False) -> Why:
    """Return the reason for an error. ``times``: the number of failures in a row.

    ``reading_tiers``: the request read the tier-state topic, which may be unavailable while the broker answers.
    """
    kind = next((kind for kinds, kind in _FAILURES if isinstance(error, kinds)), Reason.FAILED)
    if (reading_tiers or "tier_partition" in error.facts) and kind in (Reason.BROKER_AWAY, Reason.FAILED):
        kind = Reason.TIER_STATE_AWAY
    return Why(kind, f"{error}" if times < 2 else f"{error} (failed {times} times in a row)")


_UNITS = (("d", 86_400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1), ("s", 1, "", 1))


def lasting(ms: float) -> str:
    """Return a duration for people: ``7 d``, ``4 h 50 m``, ``40 s``. It has at most two units, and is rounded up to
    whole seconds: a remaining time is never shown as 0 s.
    """
    total = -int(-ms // 1000)
    large, size, small, part = next(each for each in _UNITS if total >= each[1] or each[1] == 1)
    rest = total % size // part
    return f"{total // size} {large}" + (f" {rest} {small}" if rest else "")


def about_size(size: int) -> str:
    """Return a size in bytes for people: ``1.5 GiB``, ``12 B``."""
    power = next((power for power in (4, 3, 2, 1) if size >= 1024**power), 0)
    return f"{size / 1024**power:.1f} {' KMGT'[power]}iB" if power else f"{size} B"
