"""Readers' leases: what they keep, and when they are over. Pure.

A lease delays the deletion of objects, never the log start. Only one that stood before the segment was condemned
counts: who asked later was told by the view that the segment is going. A lease that its holder took to renew an earlier
one counts since that one.
"""

from __future__ import annotations

from collections.abc import Iterator

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
    """Keys of leases that the term in force may erase. One that is over and was renewed stays as long as that lasts*:
    it says since when its holder reads.
    """
    leases = list(_leases(view))
    live = [lease for _, lease in leases if not is_over(lease, now)]
    return [at.key for at, lease in leases if is_over(lease, now) and not any(_goes_on(lease, other) for other in live)]


def lease_on(view: PartitionView, segment: SegmentMeaning, now: TimestampMs) -> ReaderLease | None:
    """The lease that keeps the objects of a condemned segment longest; None when none does."""
    subject, deleting = segment.subject, segment.deleting
    if subject is None or deleting is None:
        return None
    on_it = [each for each in _leases(view) if each[1].offsets.overlap(subject.offsets) is not None]
    before = [lease for at, lease in on_it if at.position < deleting.position]
    keeping = [
        lease
        for _, lease in on_it
        if not is_over(lease, now) and (lease in before or any(_goes_on(each, lease) for each in before))
    ]
    return max(keeping, key=lambda lease: lease.expires_at, default=None)


def _leases(view: PartitionView) -> Iterator[tuple[LiveFact, ReaderLease]]:
    for live in view.others:
        if isinstance(live.fact, ReaderLease):
            yield live, live.fact


def _goes_on(lease: ReaderLease, later: ReaderLease) -> bool:
    return lease.holder == later.holder and lease.offsets.overlap(later.offsets) is not None
