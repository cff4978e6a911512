"""Readers' leases: what they keep, and when they are over. Pure.

A lease delays the deletion of objects, never the log start. Only one that stood before the segment was condemned
counts: who asked later was told by the view that the segment is going.
"""

from __future__ import annotations

from ..state.facts import LiveFact
from ..state.offsets import TimestampMs
from ..state.partition_view import PartitionView, SegmentMeaning
from ..state.termless_facts import ReaderLease

CLOCK_TOLERANCE_MS = 5 * 60_000
"""How far the clocks of a lease's holder and of an agent may be apart; Kerberos' and most monitoring's own limit."""


def is_over(lease: ReaderLease, now: TimestampMs) -> bool:
    """Expired by the clock of whoever is most behind."""
    return lease.expires_at + CLOCK_TOLERANCE_MS < now


def expired_leases(view: PartitionView, now: TimestampMs) -> list[str]:
    """Keys of leases that the term in force may erase."""
    return [live.key for live in view.others if isinstance(live.fact, ReaderLease) and is_over(live.fact, now)]


def lease_on(view: PartitionView, segment: SegmentMeaning, now: TimestampMs) -> ReaderLease | None:
    """The lease that keeps the objects of a condemned segment longest; None when none does."""
    subject, deleting = segment.subject, segment.deleting
    if subject is None or deleting is None:
        return None
    keeping = [
        lease
        for live in view.others
        if (lease := _stood_before(live, deleting)) is not None
        and not is_over(lease, now)
        and lease.offsets.overlap(subject.offsets) is not None
    ]
    return max(keeping, key=lambda lease: lease.expires_at, default=None)


def _stood_before(live: LiveFact, deleting: LiveFact) -> ReaderLease | None:
    return live.fact if isinstance(live.fact, ReaderLease) and live.position < deleting.position else None
