"""While a store keeps an operation waiting, the status still shows which segments wait, and until when they stay."""

from __future__ import annotations

import pytest

from tests.leader.test_agent import Loop, partition
from tests.leader.world import World
from tierstate.leader.partition_worker import LOCAL_LOG_EVERY_S, PartitionWorker
from tierstate.leader.schedule import backoff
from tierstate.state.errors import BrokerUnavailable, StorageUnavailable

SHORTER_MS = 600_000


def changed(world: World) -> None:
    """Let the broker roll another segment, and shorten its retention from now on."""
    world.roll()
    world.broker.configure(world.name, {"retention.ms": str(SHORTER_MS), "local.retention.bytes": "0"})
    world.clock.advance(LOCAL_LOG_EVERY_S + 1)


def oldest(world: World, base: int) -> int:
    """Return the time of the newest record of a segment."""
    return max(batch.max_timestamp for batch in world.batches(base))


def hold(world: World, during: object) -> None:
    """Let the first write of an object take until ``during`` has run, and then fail."""

    def faults(operation: str, key: str, writes: int) -> None:
        if operation not in ("delete", "head", "list") and callable(during):
            world.faults = lambda operation, key, writes: None
            during()
            raise StorageUnavailable("no answer")

    world.faults = faults


def fail() -> None:
    raise BrokerUnavailable("no answer")


@pytest.fixture
def worker(world: World) -> PartitionWorker:
    """Return a worker whose term has begun, with nothing copied."""
    process = world.process()
    worker = process.worker()
    assert worker.advance()
    return worker


def test_waiting_segments_are_shown_while_a_copy_waits_for_its_store(world: World, worker: PartitionWorker) -> None:
    process, rolled, sentences = world._processes[0], len(world.rolled), []

    def during() -> None:
        changed(world)
        worker.look_at_local_log()
        sentences.append(process.status())

    hold(world, during)
    worker.advance()
    (status,) = sentences
    assert status.copy_lag_segments == rolled + 1
    assert status.retention_ms == SHORTER_MS
    assert status.uncopied_expires_at == oldest(world, world.rolled[0]) + SHORTER_MS


def test_they_are_shown_while_a_partition_waits_to_try_again(world: World, worker: PartitionWorker) -> None:
    process, rolled = world._processes[0], len(world.rolled)
    world.topic.on_end = fail
    while backoff(worker.failures) < 2 * LOCAL_LOG_EVERY_S:
        world.clock.advance(backoff(worker.failures))
        worker.advance()
    world.topic.on_end = lambda: None
    changed(world)
    before = worker.failures
    worker.advance()
    assert process.status().copy_lag_segments == rolled + 1
    assert worker.failures == before, "it was looked at whole, and this test shows nothing"


def test_the_agent_looks_at_the_logs_of_partitions_that_are_held(world: World) -> None:
    loop = Loop((1, 0))
    held = loop.workers[partition(0)]
    held.before_act = lambda: loop.agent.reconcile(loop.stop)
    loop.agent.run_once(loop.stop)
    assert held.local_looks > 0


def test_a_broker_that_does_not_answer_costs_one_wait_a_round() -> None:
    loop = Loop((1, 0), (1, 0), (1, 0), concurrency=3)
    for each in loop.workers.values():
        each.answers_local_looks = False
    looks = list[int]()

    def count() -> None:
        before = sum(each.local_looks for each in loop.workers.values())
        loop.agent.reconcile(loop.stop)
        looks.append(sum(each.local_looks for each in loop.workers.values()) - before)

    loop.workers[partition(0)].before_act = count
    loop.agent.run_once(loop.stop)
    assert set(looks) == {1}
