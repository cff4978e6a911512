"""A plan takes as many steps as there are segments and splits, however many of them one partition has.

Steps are counted, not timed: views that are asked for, segments that are looked at.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from bench.recorded_topic import NOW_MS, facts_of, partition_of
from tests.fetch.two_tiers import OneTopic
from tierstate.fetch.gone import NoBroker
from tierstate.fetch.plan import PlannedSplit
from tierstate.fetch.planned_split import SplitWriter, unpacked
from tierstate.fetch.reader import LogReader
from tierstate.fetch.remote import RemoteTier
from tierstate.runtime.clock import SystemClock
from tierstate.spark.options import parse_options
from tierstate.spark.planning import groups
from tierstate.state.coverage import Coverage, OwnedRange
from tierstate.state.errors import InvalidRequest
from tierstate.state.facts import LeaderElected, LiveFact, LogStartAdvanced, SegmentCopyFinished
from tierstate.state.ids import TopicIdPartition
from tierstate.state.offsets import Offset, Position
from tierstate.state.partition_view import PartitionView
from tierstate.state.segment import RemoteSegment, Term
from tierstate.state.view import SecondValue
from tierstate.storage.memory import MemoryStore
from tierstate.storage.segment.cache import ChunkCache


@dataclass
class Steps:
    views: int = 0
    segments: int = 0


class CountedSegments(tuple[RemoteSegment, ...]):
    steps: Steps

    def __iter__(self) -> Iterator[RemoteSegment]:
        for segment in super().__iter__():
            self.steps.segments += 1
            yield segment


class CountedCoverage(Coverage):
    __slots__ = ("steps",)
    steps: Steps

    def at(self, offset: int) -> OwnedRange | None:
        self.steps.segments += 1
        return super().at(offset)


@dataclass
class CountedView:
    """A `TierView` of one partition with many segments of 1 GB, as many as a view in memory has."""

    of: PartitionView
    steps: Steps = field(default_factory=Steps)

    def partition(self, partition: TopicIdPartition) -> PartitionView:
        self.steps.views += 1
        return self.of if partition == self.of.partition else PartitionView(partition)

    def partitions(self) -> list[TopicIdPartition]:
        return [self.of.partition]

    def facts(self, partition: TopicIdPartition) -> list[LiveFact]:
        return []

    def tier_partition(self, partition: TopicIdPartition) -> int:
        return 0

    def second_values(self, partition: TopicIdPartition) -> list[SecondValue]:
        return []

    def forget_second_value(self, partition: TopicIdPartition, key: str) -> None: ...

    def wait_applied(self, tier_partition: int, position: Position, timeout: float) -> None: ...

    def require_fresh(self, tier_partition: int, max_age: float) -> None: ...

    def require_ready(self, tier_partition: int) -> None: ...

    def age_s(self, tier_partition: int) -> float | None:
        return 0.0


def view_of(segments: int) -> CountedView:
    partition, steps = partition_of(0), Steps()
    facts = list(facts_of(0, segments, Position(0)))
    elected = facts[0]
    assert isinstance(elected, LeaderElected)
    term = Term(elected.epoch, Position(0), elected.id)
    copied = CountedSegments(fact.segment for fact in facts if isinstance(fact, SegmentCopyFinished))
    copied.steps = steps
    coverage = CountedCoverage(copied, elected.lineage)
    coverage.steps = steps
    start = LogStartAdvanced(partition, Offset(0), term, 0, "first term", NOW_MS)
    view = PartitionView(
        partition,
        elected.topic,
        elected,
        term,
        readable=copied,
        coverage=coverage,
        log_start=Offset(0),
        log_starts=(start,),
    )
    steps.segments = 0  # the steps of making it
    return CountedView(view, steps)


def planned(view: CountedView) -> list[PlannedSplit]:
    clock, topic = SystemClock(), view.of.topic
    assert topic is not None
    remote = RemoteTier(MemoryStore(), ChunkCache(1), clock)
    # the only partition of its topic, and nothing on the broker
    control = OneTopic(topic, view.of.partition.topic_id)
    reader = LogReader(view, control, NoBroker(view), remote, clock)
    options = parse_options(
        {"kafka.bootstrap.servers": "127.0.0.1:9", "tierstate.store": "file:///store", "subscribe": topic}
    )
    return [split for group in groups(options, reader, ((topic, 0),)) for split in group]


def steps_a_segment(segments: int) -> float:
    view = view_of(segments)
    splits = planned(view)
    assert len(splits) > 3 * segments  # of 256 MiB each
    assert splits[0].start == 0
    assert [split.end for split in splits[:-1]] == [split.start for split in splits[1:]]
    assert splits[-1].end == view.of.readable[-1].offsets.end + 1
    assert view.steps.views < 20
    return view.steps.segments / segments


@pytest.mark.extended
def test_a_plan_of_ten_thousand_segments_looks_at_each_of_them_a_few_times() -> None:
    assert steps_a_segment(10_000) == pytest.approx(steps_a_segment(1_000), rel=0.05)


@pytest.mark.slow
def test_a_plan_of_a_hundred_thousand_segments_looks_at_each_of_them_as_often() -> None:
    assert steps_a_segment(100_000) == pytest.approx(steps_a_segment(1_000), rel=0.05)


def test_packed_splits_are_the_splits_and_a_third_smaller_than_pickled_ones() -> None:
    splits = planned(view_of(20))
    writer = SplitWriter()
    packed = [writer.packed([split]) for split in splits]
    assert [split for each in packed for split in unpacked(each)] == splits
    assert sum(map(len, packed)) < 0.7 * sum(len(pickle.dumps(split)) for split in splits)


def test_a_segment_of_several_splits_is_packed_once() -> None:
    splits = planned(view_of(1))
    writer = SplitWriter()
    segments = {id(writer.segment(part.segment)) for split in splits for part in split.parts if part.segment}
    assert len(splits) > 1
    assert len(segments) == 1


def test_splits_that_another_version_packed_are_refused() -> None:
    packed = SplitWriter().packed(planned(view_of(1))[:1])
    of_another = packed.replace(b"K\x00Q", b"K\xfdQ")  # a class that is unknown here
    assert of_another != packed
    with pytest.raises(InvalidRequest, match="another version of tierstate"):
        unpacked(of_another)
    with pytest.raises(InvalidRequest, match="another version of tierstate"):
        unpacked(pickle.dumps([("orders", 0)]))
