"""A query's segments are kept by a lease that stood before the plan; segments lost all the same raise "expired"."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from tests.spark.tiers import NOW, Tiers
from tierstate.runtime.clock import SystemClock
from tierstate.spark.batch import BatchReader
from tierstate.spark.open import open_log
from tierstate.spark.options import SourceOptions, parse_options
from tierstate.spark.planning import groups, plan_groups
from tierstate.spark.positions import TopicPartition
from tierstate.state.errors import CorruptData, InvalidRequest, SegmentExpired
from tierstate.state.facts import DeleteReason, LogStartAdvanced, SegmentDeleteStarted
from tierstate.state.offsets import Extent, Offset, OffsetRange
from tierstate.state.partition_view import PartitionView
from tierstate.state.segment import RemoteSegment
from tierstate.storage.segment.writer import delete_segment

pytestmark = pytest.mark.kafka
HOUR_MS = 3_600_000


@pytest.fixture
def copied(tiers: Tiers, request: pytest.FixtureRequest) -> tuple[str, list[RemoteSegment]]:
    name = tiers.create(f"lease-{os.getpid()}-{abs(hash(request.node.name)) % 10**6}")
    tiers.produce(name, 0, [{"value": os.urandom(100)} for _ in range(300)])
    return name, tiers.copy(name, 0)


def options(tiers: Tiers, name: str, **more: str) -> SourceOptions:
    return parse_options(tiers.options(subscribe=name, **more))


def seen(tiers: Tiers, name: str) -> PartitionView:
    with open_log(options(tiers, name), SystemClock()) as log:
        return log.reader.view(name, 0)


def expire(tiers: Tiers, segment: RemoteSegment) -> None:
    """Expire the segment as an agent does once its retention is over; without the wait for readers."""
    after = Offset(segment.offsets.end + 1)
    tiers.say(LogStartAdvanced(segment.partition, after, segment.term, 1, "retention", NOW))
    tiers.say(SegmentDeleteStarted(segment, segment.term, 1, DeleteReason.RETENTION_TIME, NOW))
    delete_segment(tiers.store, segment)


def test_a_query_takes_a_lease_on_what_it_reads(tiers: Tiers, copied: tuple[str, list[RemoteSegment]]) -> None:
    name, _ = copied
    before = SystemClock().now_ms()
    BatchReader(options(tiers, name, endingOffsets=f'{{"{name}": {{"0": 250}}}}')).partitions()
    (lease,) = seen(tiers, name).leases
    assert lease.offsets == OffsetRange(Offset(0), Offset(249))
    assert before + HOUR_MS <= lease.expires_at <= SystemClock().now_ms() + HOUR_MS
    assert lease.holder.startswith("spark ")


def test_segments_condemned_before_the_lease_are_not_planned(
    tiers: Tiers, copied: tuple[str, list[RemoteSegment]]
) -> None:
    name, segments = copied
    query_options = options(tiers, name)
    with open_log(query_options, SystemClock()) as log:

        def late(ranges: Mapping[TopicPartition, Extent]) -> bool:
            expire(tiers, segments[0])
            written = log.take_leases(ranges)
            assert log.reader.view(name, 0).leases, "planned by a view that may be older than the lease"
            return written

        planned = [split for group in groups(query_options, log.reader, log.partitions, late) for split in group]
    ids = {part.segment.segment_id for split in planned for part in split.parts if part.segment is not None}
    assert ids == {segment.segment_id for segment in segments[1:]}


def test_the_next_query_does_with_the_lease_that_is_there(
    tiers: Tiers, copied: tuple[str, list[RemoteSegment]]
) -> None:
    name, _ = copied
    for lease, standing in (("1h", 1), ("1h", 1), ("3h", 2), ("0", 2)):
        list(plan_groups(options(tiers, name, tierstate__lease=lease), SystemClock()))
        assert len(seen(tiers, name).leases) == standing


def test_no_lease_is_taken_on_what_is_local_alone(tiers: Tiers, copied: tuple[str, list[RemoteSegment]]) -> None:
    name, segments = copied
    start = segments[-1].offsets.end + 1
    list(plan_groups(options(tiers, name, startingOffsets=f'{{"{name}": {{"0": {start}}}}}'), SystemClock()))
    assert seen(tiers, name).leases == ()


def test_a_lease_longer_than_any_may_be_is_refused(tiers: Tiers, copied: tuple[str, list[RemoteSegment]]) -> None:
    with pytest.raises(InvalidRequest, match="a lease may not last so long"):
        BatchReader(options(tiers, copied[0], tierstate__lease="2d")).partitions()


def test_a_segment_that_expired_after_the_plan_is_reported_as_expired(
    tiers: Tiers, copied: tuple[str, list[RemoteSegment]]
) -> None:
    name, segments = copied
    reader = BatchReader(options(tiers, name))
    planned = reader.partitions()
    expire(tiers, segments[0])
    with pytest.raises(SegmentExpired) as expired:
        read(reader, planned)
    assert expired.value.facts["segment_id"] == segments[0].segment_id
    assert expired.value.facts["topic"] == name


def test_an_object_of_a_live_segment_that_is_missing_is_damage(
    tiers: Tiers, copied: tuple[str, list[RemoteSegment]]
) -> None:
    name, segments = copied
    reader = BatchReader(options(tiers, name))
    planned = reader.partitions()
    tiers.store.delete(segments[1].object_key + ".log")
    with pytest.raises(CorruptData, match=segments[1].segment_id):
        read(reader, planned)


def read(reader: BatchReader, planned: object) -> None:
    assert isinstance(planned, list)
    for partition in planned:
        for _ in reader.read(partition):
            pass
