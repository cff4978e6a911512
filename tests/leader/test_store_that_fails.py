"""A store that takes no manifest, or nothing, for hours: neither objects nor facts pile up, and all is reported."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.leader.world import Process, World
from tierstate.leader.gauges import feed_gauges
from tierstate.leader.partition_worker import PartitionWorker
from tierstate.leader.schedule import MAX_BACKOFF_S
from tierstate.rules.reasons import Reason
from tierstate.runtime.listener import CopyFailed
from tierstate.runtime.metrics import Metrics
from tierstate.state.errors import AccessDenied, StorageFull, StorageUnavailable, Throttled, TierstateError

ATTEMPTS = 50
LOOK_S = 10.0
REFUSALS = [
    StorageFull("no room"),
    AccessDenied("no right to write"),
    StorageUnavailable("no answer"),
    Throttled("slow down"),
]


def refuse_manifests(world: World, error: TierstateError) -> None:
    def faults(operation: str, key: str, writes: int) -> None:
        if operation == "put" and key.endswith(".rsm-manifest"):
            raise error

    world.faults = faults


def failed_attempts(process: Process) -> list[CopyFailed]:
    return [event for event in process.events if isinstance(event, CopyFailed)]


def work_until_failed(world: World, process: Process, worker: PartitionWorker, times: int) -> None:
    """Let the worker look every few seconds, as the agent does."""
    while len(failed_attempts(process)) < times:
        world.clock.advance(LOOK_S)
        process.work(worker)


def test_a_store_that_is_away_is_asked_before_a_fact_says_that_a_copy_began(world: World) -> None:
    """Otherwise every partition would write two facts per attempt, which cannot be erased before the store is back."""

    def away(operation: str, key: str, writes: int) -> None:
        raise StorageUnavailable("no answer")

    process = world.process()
    worker = process.worker()
    process.work(worker)
    world.roll()
    world.broker.append(world.name, 0, world.end())
    world.faults = away
    before = world.topic.appends
    work_until_failed(world, process, worker, ATTEMPTS)
    assert world.topic.appends == before
    assert process.status().not_copied_reason is Reason.STORE_AWAY
    world.faults = lambda operation, key, writes: None
    world.clock.advance(MAX_BACKOFF_S)
    process.work(worker)
    assert world.local_start() == world.bases[-1]
    world.check_promises()


@pytest.mark.parametrize(
    ("error", "at_once"), [(StorageUnavailable("no answer"), True), (AccessDenied("no right to write"), False)]
)
def test_copies_that_an_absent_store_prevented_are_made_on_its_return(
    error: TierstateError, at_once: bool, world: World
) -> None:
    """Whatever else keeps a copy from being made goes on waiting: an answer of the store proves nothing about it."""
    process = world.process()
    worker = process.worker()
    refuse_manifests(world, error)
    work_until_failed(world, process, worker, 12)
    world.faults = lambda operation, key, writes: None
    process.work(worker)
    assert world.view().readable == ()
    worker.returned([StorageUnavailable])
    process.work(worker)
    assert bool(world.view().readable) is at_once


@pytest.mark.extended
@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
def test_nothing_piles_up_over_fifty_failed_attempts_and_nothing_is_left(error: TierstateError, world: World) -> None:
    """Facts of objects that may still land stay for a while: at most of the attempts of that while."""
    process = world.process()
    worker = process.worker()
    refuse_manifests(world, error)
    began = world.clock.monotonic()
    facts, objects = [], []
    for times in range(1, ATTEMPTS + 1):
        work_until_failed(world, process, worker, times)
        facts.append(len(process.view.facts(world.partition)))
        objects.append(len(world.objects()))
    assert set(objects) == {0}
    assert max(facts[ATTEMPTS // 2 :]) <= max(facts[: ATTEMPTS // 2])
    assert facts[-1] == facts[ATTEMPTS // 2]
    assert world.clock.monotonic() - began >= (ATTEMPTS - 10) * MAX_BACKOFF_S
    assert world.local_start() == 0
    world.check_promises()

    world.faults = lambda operation, key, writes: None
    for _ in range(10):
        world.clock.advance(MAX_BACKOFF_S)
        process.work(worker)
    view = world.check_promises()
    assert set(view.segments) == {each.segment_id for each in view.readable}
    assert len(world.objects()) == 3 * len(world.rolled)
    assert world.local_start() == world.bases[-1]


def test_after_three_failures_the_back_off_grows_and_is_reported(world: World) -> None:
    process = world.process()
    worker = process.worker()
    refuse_manifests(world, StorageUnavailable("no answer"))
    moments = []
    for times in range(1, 16):
        work_until_failed(world, process, worker, times)
        moments.append(world.clock.monotonic())
    waited = [after - before for before, after in pairwise(moments)]
    assert waited == [10, 10, 10, 10, 10, 20, 40, 80, 160, 300, 300, 300, 300, 300]
    assert [event.consecutive_failures for event in failed_attempts(process)] == [*range(1, 16)]
    status, metrics = process.status(), Metrics()
    assert status.not_copied is not None
    assert "no answer" in status.not_copied
    assert status.consecutive_failures == 15
    feed_gauges(metrics, process.board, process.view, world.clock)
    page = metrics.exposition().decode()
    assert f'tierstate_consecutive_failures{{partition="0",topic="{world.name}"}} 15.0' in page
