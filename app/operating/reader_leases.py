"""A reader's lease before a plan: planned objects are kept until the lease ends, even if retention expires them.

The lease is appended, and the view is read up to it, before anything is planned. This prevents a loss: a segment that
was marked for deletion before the lease is seen as marked and is not planned. A segment that is marked after the lease
keeps its objects (`rules/leases.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ...broker.tier_topic import TierTopic
from ...leader.brokers_time import BrokersTime
from ...leader.term import APPLY_TIMEOUT_S
from ...rules.clocks import NOTED_MS
from ...runtime.id_source import IdSource
from ...schemas.codec import encode_fact
from ...state.errors import InvalidRequest
from ...state.facts import ReaderLease
from ...state.ids import FactId, TopicIdPartition
from ...state.keys import key_of
from ...state.offsets import Extent, Offset, OffsetRange, TimestampMs
from ...state.view import TierView
from ..opening.connection import Connection

Ranges = Mapping[TopicIdPartition, Extent]
"""The half-open range of offsets of each partition."""


def take_leases(
    connection: Connection, view: TierView, ranges: Ranges, holder: str, seconds: float, ids: IdSource
) -> list[ReaderLease]:
    """Write a lease for each partition with remote records in its range, and return the new leases. They expire by
    themselves. A partition gets none if a lease of ``holder`` covers these records for half of ``seconds`` already.

    Raises InvalidRequest if ``seconds`` exceeds ``lease.max``. After AccessDenied or Unavailable, rely on no lease.
    """
    longest = connection.settings.lease.max
    if seconds > longest:
        raise InvalidRequest("a lease may not last so long", seconds=seconds, longest=longest)
    time = BrokersTime(connection.clock, connection.topic, connection.store)

    def take(now: TimestampMs) -> list[ReaderLease]:
        leases = [
            ReaderLease(place, FactId.of(ids.uuid()), offsets, holder, TimestampMs(now + int(seconds * 1000)))
            for place, offsets in _wanted(view, ranges, holder, TimestampMs(now + int(seconds * 500)))
        ]
        _append(connection.topic, view, [(lease, encode_fact(lease)) for lease in leases])
        return leases

    leases = take(now := time.now_ms())
    # the first append of this process shows the brokers' time: if this clock is behind, the lease would end too early
    if leases and time.now_ms() - now > NOTED_MS:
        leases = take(time.now_ms())
    return leases


def end_leases(topic: TierTopic, view: TierView, places: Collection[TopicIdPartition], holder: str) -> int:
    """End the leases of ``holder`` on these partitions, after refreshing the view, and return their number. Raises
    AccessDenied and Unavailable; the leases then expire by themselves.
    """
    for number in {view.tier_partition(place) for place in places}:
        view.require_fresh(number, 0.0)
    leases = [lease for place in places for lease in view.partition(place).leases if lease.holder == holder]
    _append(topic, view, [(lease, None) for lease in leases])
    return len(leases)


def _wanted(
    view: TierView, ranges: Ranges, holder: str, until: TimestampMs
) -> Iterator[tuple[TopicIdPartition, OffsetRange]]:
    """Yield each partition with remote records in its range that no lease of ``holder`` covers until ``until``."""
    for place, (start, end) in ranges.items():
        partition_view, offsets = view.partition(place), OffsetRange(start, Offset(end - 1))
        there = [part for each in partition_view.coverage.owned if (part := each.offsets.overlap(offsets)) is not None]
        if not there:
            continue
        remote = OffsetRange(there[0].start, there[-1].end)
        held = [each for each in partition_view.leases if each.holder == holder and each.expires_at >= until]
        if not any(lease.offsets.overlap(remote) == remote for lease in held):
            yield place, offsets  # a local record may be remote before it is read


def _append(topic: TierTopic, view: TierView, leases: list[tuple[ReaderLease, bytes | None]]) -> None:
    """Append all, then wait until the view has the last of each tier-state partition. Value None is a tombstone."""
    last = {}
    for lease, value in leases:
        number = view.tier_partition(lease.partition)
        last[number] = topic.append(number, key_of(lease), value)
    for number, position in last.items():
        view.wait_applied(number, position, APPLY_TIMEOUT_S)
