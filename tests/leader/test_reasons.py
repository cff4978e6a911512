"""The kind of reason of each error, and the worker's status of partitions that are barred."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.leader.world import World
from tierstate.leader.gauges import feed_gauges
from tierstate.rules.decide import excluded, internal
from tierstate.rules.reasons import Reason, lasting, why_failed
from tierstate.runtime.listener import PartitionRefused
from tierstate.runtime.metrics import Metrics
from tierstate.state import errors
from tierstate.state.offsets import Offset


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.CorruptData("x"), Reason.CORRUPT_DATA),
        (errors.StorageUnavailable("x"), Reason.STORE_AWAY),
        (errors.Throttled("x"), Reason.STORE_AWAY),
        (errors.StorageFull("x"), Reason.STORE_FULL),
        (errors.DiskFull("x"), Reason.TIER_STATE_AWAY),
        (errors.ViewBehind("x"), Reason.TIER_STATE_AWAY),
        (errors.UnknownOutcome("x"), Reason.TIER_STATE_AWAY),
        (errors.BrokerUnavailable("x", topic="orders"), Reason.BROKER_AWAY),
        (errors.BrokerUnavailable("x", tier_partition=3), Reason.TIER_STATE_AWAY),
        (errors.UnknownTopic("x", tier_partition=3), Reason.TIER_STATE_AWAY),
        (errors.AccessDenied("x", tier_partition=3), Reason.ACCESS_DENIED),
        (errors.Fenced("x"), Reason.FENCED),
        (errors.UnknownTopic("x"), Reason.FAILED),
        (errors.TimedOut("x"), Reason.FAILED),
    ],
)
def test_an_error_is_a_reason_of_its_own_kind(error: errors.TierstateError, kind: Reason) -> None:
    assert why_failed(error).kind == kind


def test_a_failure_that_comes_again_says_how_often() -> None:
    assert why_failed(errors.Fenced("a higher term"), 1).text == "a higher term"
    assert why_failed(errors.Fenced("a higher term"), 3).text == "a higher term (failed 3 times in a row)"


def test_a_remaining_wait_is_never_written_as_zero() -> None:
    assert [lasting(ms) for ms in (0, 1, 1000, 1001, 59_001)] == ["0 s", "1 s", "1 s", "2 s", "1 m"]
    assert [lasting(1000 * s) for s in (61, 3600, 17_455, 604_800, 900_000)] == [
        "1 m 1 s",
        "1 h",
        "4 h 50 m",
        "7 d",
        "10 d 10 h",
    ]


def test_an_internal_topic_is_refused_without_a_question(world: World) -> None:
    process = world.process()
    worker = process.worker(observe=None)
    worker.barred = internal("__consumer_offsets")
    world.broker.delete_topic(world.name)
    process.work(worker)
    assert process.status().refused_reason == process.status().not_copied_reason == Reason.REFUSED_INTERNAL
    assert process.status().last_error is None
    assert [event.reason for event in process.events if isinstance(event, PartitionRefused)] == [
        "internal topic: __consumer_offsets is never tiered"
    ]


def test_an_excluded_partition_is_neither_copied_nor_trimmed_and_no_term_begins(world: World) -> None:
    process = world.process()
    worker = process.worker()
    worker.barred = excluded(world.name)
    process.work(worker)
    assert world.topic.appends == 0
    assert process.status().not_copied_reason == process.status().not_trimmed_reason == Reason.EXCLUDED
    assert process.status().refused is None
    worker.barred = None
    process.work(worker)
    assert world.local_start() == world.bases[-1]


def test_an_older_message_format_is_refused_once_and_writes_no_fact_of_a_copy(world: World) -> None:
    base = world.rolled[1]
    data = bytearray(world.file(base).read_bytes())
    data[16] = 1
    world.file(base).write_bytes(data)
    process = world.process()
    worker = process.work()
    written = world.topic.appends
    assert [segment.offsets.start for segment in world.view().readable] == world.rolled[:1]
    status = process.status()
    assert status.refused_reason == status.not_copied_reason == Reason.REFUSED_FORMAT
    assert status.consecutive_failures == 0
    for _ in range(20):
        world.clock.advance(60)
        process.work(worker)
    assert world.topic.appends == written, "not tried again and again"
    assert sum(isinstance(event, PartitionRefused) for event in process.events) == 1


def test_metrics_count_partitions_by_the_kind_of_their_reason(new_world: Callable[..., World]) -> None:
    world = new_world("none", {"cleanup.policy": "compact"})
    process = world.process()
    process.work()
    metrics = Metrics()
    feed_gauges(metrics, process.board, process.view, world.clock)
    page = metrics.exposition().decode()
    assert 'tierstate_refused_partitions{reason="refused-compacted"} 1.0' in page
    assert 'tierstate_partitions_not_copied{reason="refused-compacted"} 1.0' in page
    assert 'tierstate_partitions_not_trimmed{reason="refused-compacted"} 1.0' in page


def test_a_transaction_that_stays_open_is_measured(world: World) -> None:
    process = world.process()
    worker = process.worker()
    world.broker.open_transaction(world.name, 0, Offset(1))
    process.work(worker)
    assert process.status().not_copied_reason == Reason.OPEN_TRANSACTION
    world.clock.advance(42)
    process.work(worker)
    assert process.status().lso_pinned_s == 42
    assert "for 42 s at least" in (process.status().not_copied or "")
