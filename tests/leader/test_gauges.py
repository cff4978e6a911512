"""Gauges of an agent's partitions: from its last knowledge, and from the view."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.follower.said import attempt, elected, finished, partition
from tests.leader.world import World
from tests.twins.manual_clock import ManualClock
from tierstate.leader.gauges import feed_gauges
from tierstate.leader.status import PartitionStatus, StatusBoard
from tierstate.runtime.metrics import COUNTERS, Metrics
from tierstate.state.coverage import Coverage
from tierstate.state.epochs import Lineage
from tierstate.state.facts import LiveFact
from tierstate.state.ids import TopicIdPartition
from tierstate.state.offsets import Offset, OffsetRange, Position, TimestampMs
from tierstate.state.partition_view import PartitionView
from tierstate.state.segment import RemoteSegment
from tierstate.state.view import SecondValue

LEADER = elected(0, 0, 1)


class Seen:
    """A `TierView` of one partition, handed in."""

    def __init__(self, view: PartitionView) -> None:
        self.view = view

    def partition(self, partition: TopicIdPartition) -> PartitionView:
        return self.view

    def partitions(self) -> list[TopicIdPartition]:
        return [self.view.partition]

    def facts(self, partition: TopicIdPartition) -> list[LiveFact]:
        return []

    def tier_partition(self, partition: TopicIdPartition) -> int:
        return 0

    def second_values(self, partition: TopicIdPartition) -> list[SecondValue]:
        return []

    def forget_second_value(self, partition: TopicIdPartition, key: str) -> None:
        """Do nothing: there is no second value."""

    def wait_applied(self, tier_partition: int, position: Position, timeout: float) -> None:
        """Return at once: this view is always up to date."""

    def require_fresh(self, tier_partition: int, max_age: float) -> None:
        """Return at once: this view is always up to date."""

    def require_ready(self, tier_partition: int) -> None:
        """Return at once: this view is always up to date."""

    def age_s(self, tier_partition: int) -> float | None:
        return 0.0


class Gauges:
    def __init__(self, view: PartitionView | None = None, **status: Any) -> None:
        self.clock, self.board, self.metrics = ManualClock(), StatusBoard(), Metrics()
        shown = PartitionStatus("orders", 0, partition(0).topic_id, leads=True)
        self.board.put(partition(0), replace(shown, **status))
        feed_gauges(self.metrics, self.board, Seen(view or PartitionView(partition(0))), self.clock)

    def __getitem__(self, name: str) -> float | None:
        """Return the one sample, or None if the metric has none."""
        page = self.metrics.exposition().decode()
        values = [s.value for f in text_string_to_metric_families(page) for s in f.samples if s.name == name]
        return values[0] if values else None


def segment(first: int, last: int, seed: int = 0) -> RemoteSegment:
    made = finished(attempt(0, first, LEADER, 0, seed=seed), 1_000)
    offsets = OffsetRange(Offset(first), Offset(last))
    return replace(made, offsets=offsets, last_record_offset=Offset(last), copied_at=TimestampMs(10_000))


def view_of(*segments: RemoteSegment, log_start: int = 0) -> PartitionView:
    lineage = Lineage.of((0, 0))
    return PartitionView(
        partition(0),
        leader=LEADER,
        readable=segments,
        coverage=Coverage(segments, lineage),
        log_start=Offset(log_start),
    )


def test_the_time_until_uncopied_data_expires_goes_on_while_nothing_new_is_learnt() -> None:
    """It matters exactly then: the agent cannot look, and Kafka's retention does not wait for it."""
    gauges = Gauges(uncopied_expires_at=ManualClock().now_ms() + 50_000)
    assert gauges["tierstate_uncopied_expires_in_seconds"] == 50
    gauges.clock.advance(20)
    assert gauges["tierstate_uncopied_expires_in_seconds"] == 30
    gauges.clock.advance(100)
    assert gauges["tierstate_uncopied_expires_in_seconds"] == 0


def test_nothing_in_sight_of_retention_has_no_countdown() -> None:
    assert Gauges()["tierstate_uncopied_expires_in_seconds"] is None


@pytest.mark.parametrize(("local_start", "missing"), [(0, 0), (100, 0), (150, 50), (400, 200)])
def test_offsets_below_the_local_start_that_neither_tier_has_are_a_gap(local_start: int, missing: int) -> None:
    """0..99 and 200..299 are remote."""
    view = view_of(segment(0, 99), segment(200, 299))
    assert Gauges(view, local_log_start_offset=local_start)["tierstate_gap_offsets"] == missing


def test_a_partition_with_lost_facts_is_counted() -> None:
    assert Gauges(facts_lost="tierstate recover orders:0")["tierstate_facts_lost"] == 1
    assert Gauges()["tierstate_facts_lost"] == 0


def test_offsets_below_the_log_start_are_no_gap() -> None:
    assert Gauges(view_of(segment(200, 299), log_start=200), local_log_start_offset=300)["tierstate_gap_offsets"] == 0


def test_offsets_that_left_the_broker_by_neither_a_trim_nor_an_order_of_ours_are_cut_elsewhere() -> None:
    """This holds whether or not they are still in the remote tier."""
    view = replace(view_of(segment(0, 99)), trim_intended=Offset(50))
    for local_start, cut in ((50, 0), (60, 10), (150, 100)):
        assert Gauges(view, local_log_start_offset=local_start)["tierstate_cut_elsewhere_offsets"] == cut
    assert (
        Gauges(replace(view, log_start=Offset(60)), local_log_start_offset=60)["tierstate_cut_elsewhere_offsets"] == 0
    )


def test_segments_with_records_of_the_future_are_counted() -> None:
    """Records count if they lie in the future now, as in retention, not at the time of their copy."""
    now = ManualClock().now_ms()
    was, stays = (replace(segment(at, at + 99), max_timestamp=TimestampMs(now + at)) for at in (100, 200))
    gauges = Gauges(view_of(segment(0, 99), was, stays))
    assert gauges["tierstate_future_segments"] == 2
    gauges.clock.advance(0.1)
    assert gauges["tierstate_future_segments"] == 1


def test_partitions_in_doubt_are_counted_by_kind() -> None:
    view = view_of(segment(0, 99))
    assert Gauges(replace(view, degraded=("unknown fact",)))["tierstate_degraded_partitions"] == 1
    assert Gauges(replace(view, contradictions=("two values",)))["tierstate_contradicted_partitions"] == 1
    unknown = replace(view, leader=replace(LEADER, lineage=Lineage()))
    assert Gauges(unknown)["tierstate_lineage_unknown_partitions"] == 1
    well = Gauges(view)
    for name in (
        "tierstate_degraded_partitions",
        "tierstate_contradicted_partitions",
        "tierstate_lineage_unknown_partitions",
        "tierstate_integrity_holds",
    ):
        assert well[name] == 0


def test_a_partition_that_another_broker_leads_is_not_measured() -> None:
    gauges = Gauges(view_of(segment(0, 99)), leads=False, local_log_start_offset=150, consecutive_failures=3)
    for name in (
        "tierstate_gap_offsets",
        "tierstate_cut_elsewhere_offsets",
        "tierstate_consecutive_failures",
        "tierstate_local_excess_bytes",
    ):
        assert gauges[name] is None


def test_counters_by_topic_begin_at_zero_once_the_topic_is_known() -> None:
    gauges = Gauges()
    for name in (name for name, (_, labels) in COUNTERS.items() if labels == ("topic",)):
        assert gauges[name] == 0, name


def test_expired_local_data_that_something_keeps_is_measured_in_bytes(world: World) -> None:
    """A consumer group that still reads at the start keeps every segment."""
    process = world.process()
    world.broker.commit("slow", world.name, 0, 0)
    process.work()
    rolled = world.log.snapshot(world.partition, world.name).segments[:-1]
    assert world.local_start() == 0
    assert process.status().local_excess_bytes == sum(each.size_bytes for each in rolled) > 0
