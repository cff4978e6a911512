"""Readers' leases: which objects they keep, and when they expire. Pure.

A lease delays the deletion of objects, never the log start. It counts only if it was taken before the segment was
condemned: later readers see in the view that the segment will be deleted. A lease renews an earlier lease of the same
holder on overlapping offsets: then it counts from the earlier lease on.
"""

from __future__ import annotations

from ..state.facts import ReaderLease
from ..state.offsets import TimestampMs
from ..state.partition_view import PartitionView, SegmentMeaning

CLOCK_TOLERANCE_MS = 5 * 60_000
"""The clocks of a lease's holder and of an agent may differ by this much, as in Kerberos and most monitoring."""


def is_over(lease: ReaderLease, now: TimestampMs) -> bool:
    """Return whether the lease has expired, even by a clock that is `CLOCK_TOLERANCE_MS` behind ``now``."""
    return lease.expires_at + CLOCK_TOLERANCE_MS < now


def expired_leases(view: PartitionView, now: TimestampMs) -> list[str]:
    """Return the keys of leases that the term in force may erase. An expired lease is kept while its renewal is live:
    it shows since when its holder has been reading.
    """
    leases = view.of_kind(ReaderLease)
    live = [lease for _, lease in leases if not is_over(lease, now)]
    return [at.key for at, lease in leases if is_over(lease, now) and not any(_goes_on(lease, other) for other in live)]


def lease_on(view: PartitionView, segment: SegmentMeaning, now: TimestampMs) -> ReaderLease | None:
    """Return the lease that keeps the objects of a condemned segment longest; None if there is none."""
    subject, deleting = segment.subject, segment.deleting
    if subject is None or deleting is None:
        return None
    on_it = [each for each in view.of_kind(ReaderLease) if each[1].offsets.overlap(subject.offsets) is not None]
    before = [lease for at, lease in on_it if at.position < deleting.position]
    keeping = [
        lease
        for _, lease in on_it
        if not is_over(lease, now) and (lease in before or any(_goes_on(each, lease) for each in before))
    ]
    return max(keeping, key=lambda lease: lease.expires_at, default=None)


def _goes_on(lease: ReaderLease, later: ReaderLease) -> bool:
    return lease.holder == later.holder and lease.offsets.overlap(later.offsets) is not None
