"""A reader's lease before a plan: objects that are planned stay until its time, whatever expires meanwhile.

Appended, and read back to it, before anything is planned*: a segment that was condemned before the lease is seen as
condemned, and is not planned; one that is condemned after it keeps its objects (`rules/leases.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ..broker.tier_topic import TierTopic
from ..leader.brokers_time import BrokersTime
from ..leader.term import APPLY_TIMEOUT_S
from ..rules.clocks import NOTED_MS
from ..runtime.id_source import IdSource
from ..schemas.codec import encode_fact
from ..state.errors import InvalidRequest
from ..state.ids import FactId, TopicIdPartition
from ..state.keys import key_of
from ..state.offsets import Extent, Offset, OffsetRange, TimestampMs
from ..state.partition_view import PartitionView
from ..state.termless_facts import ReaderLease
from ..state.view import TierView
from .connection import Connection

Ranges = Mapping[TopicIdPartition, Extent]
"""First offset, and the one after the last."""


def take_leases(
    connection: Connection, view: TierView, ranges: Ranges, holder: str, seconds: float, ids: IdSource
) -> list[ReaderLease]:
    """The leases that were written: one for each partition of which anything remote is read, and none where one of the
    same holder covers that already for half as long. Nobody need end them: their time does.

    Raises InvalidRequest for longer than ``lease.max``; AccessDenied, Unavailable: what no lease keeps may go.
    """
    longest = connection.settings.lease.max
    if seconds > longest:
        raise InvalidRequest("a lease may not last so long", seconds=seconds, longest=longest)
    time = BrokersTime(connection.clock, connection.topic, connection.store)
    taken = _take(connection, view, ranges, holder, seconds, ids, now := time.now_ms())
    # the first append of this process shows the brokers' time: by a clock that is behind it the lease ends too early
    if taken and time.now_ms() - now > NOTED_MS:
        taken = _take(connection, view, ranges, holder, seconds, ids, time.now_ms())
    return taken


def _take(
    connection: Connection,
    view: TierView,
    ranges: Ranges,
    holder: str,
    seconds: float,
    ids: IdSource,
    now: TimestampMs,
) -> list[ReaderLease]:
    wanted = list(_wanted(view, ranges, holder, TimestampMs(now + int(seconds * 500))))
    leases = [
        ReaderLease(place, FactId.of(ids.uuid()), offsets, holder, TimestampMs(now + int(seconds * 1000)))
        for place, offsets in wanted
    ]
    _append(connection.topic, view, [(lease, encode_fact(lease)) for lease in leases])
    return leases


def end_leases(topic: TierTopic, view: TierView, places: Collection[TopicIdPartition], holder: str) -> int:
    """Gives up what a holder has on these partitions, by a view that is fresh; how many leases that were. Raises
    AccessDenied, Unavailable: then they end by themselves.
    """
    for number in {view.tier_partition(place) for place in places}:
        view.require_fresh(number, 0.0)
    found = [lease for place in places for lease in view.partition(place).leases if lease.holder == holder]
    _append(topic, view, [(lease, None) for lease in found])
    return len(found)


def _wanted(
    view: TierView, ranges: Ranges, holder: str, until: TimestampMs
) -> Iterator[tuple[TopicIdPartition, OffsetRange]]:
    for place, (start, end) in ranges.items():
        known = view.partition(place)
        remote = _remote(known, OffsetRange(start, Offset(end - 1)))
        if remote is not None and not any(_covers(each, remote, holder, until) for each in known.leases):
            yield place, OffsetRange(start, Offset(end - 1))  # what is local now may be remote before it is read


def _remote(view: PartitionView, offsets: OffsetRange) -> OffsetRange | None:
    """From the first to the last of ``offsets`` that the remote tier has."""
    there = [part for each in view.coverage.owned if (part := each.offsets.overlap(offsets)) is not None]
    return OffsetRange(there[0].start, there[-1].end) if there else None


def _covers(lease: ReaderLease, offsets: OffsetRange, holder: str, until: TimestampMs) -> bool:
    return lease.holder == holder and lease.expires_at >= until and lease.offsets.overlap(offsets) == offsets


def _append(topic: TierTopic, view: TierView, leases: list[tuple[ReaderLease, bytes | None]]) -> None:
    """All of them, and then until the view has the last: one wait, however many partitions. None: a tombstone."""
    last = {}
    for lease, value in leases:
        number = view.tier_partition(lease.partition)
        last[number] = topic.append(number, key_of(lease), value)
    for number, position in last.items():
        view.wait_applied(number, position, APPLY_TIMEOUT_S)
