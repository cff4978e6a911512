"""The transaction that holds the last stable offset: shown to people, asked for seldom, never delaying an operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.leader.world import Process, World
from tests.twins.memory_broker import MemoryBroker
from tierstate.broker.control import OpenTransaction
from tierstate.leader.partition_worker import PartitionWorker
from tierstate.leader.status import ASK_EVERY_S, NAMED_AFTER_S, PinnedBy
from tierstate.rules.reasons import Reason
from tierstate.state.errors import AccessDenied, BrokerUnavailable, InvalidRequest, TierstateError
from tierstate.state.ids import BrokerId
from tierstate.state.offsets import Offset

TODAY = "for {} s at least"
"""The end of the sentence while no producer is named."""


class Counting:
    """A cluster that counts questions for names. ``before_answer`` runs before an answer is given."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker, self.asked = broker, 0
        self.before_answer: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    def open_transactions(self, topic: str, partition: int, *, broker: BrokerId) -> tuple[OpenTransaction, ...]:
        self.asked += 1
        self.before_answer()
        return self._broker.open_transactions(topic, partition, broker=broker)


@pytest.fixture
def process(world: World) -> Process:
    return world.process()


@pytest.fixture
def counting(process: Process) -> Counting:
    cluster: Any = Counting(process.world.broker)
    process.context = replace(process.context, broker=cluster)
    assert isinstance(cluster, Counting)
    return cluster


@pytest.fixture
def worker(process: Process) -> PartitionWorker:
    """Return a worker whose last stable offset is pinned from now on."""
    process.world.broker.open_transaction(process.world.name, 0, Offset(1))
    return process.work()


def later(process: Process, worker: PartitionWorker, seconds: float) -> str:
    """Return the reason why nothing is copied after so many seconds."""
    process.world.clock.advance(seconds)
    process.work(worker)
    return process.status().not_copied or ""


def test_a_transaction_that_lasts_is_named_with_its_beginning_and_its_age(
    process: Process, worker: PartitionWorker
) -> None:
    since = process.world.clock.now_ms()
    sentence = later(process, worker, 42)
    assert sentence.endswith(
        "for 42 s at least; it is of producer 4000, epoch 0, begins at offset 1 and is open since "
        "2023-11-14T22:13:20Z at the latest, its producer's last record here is of 1970-01-01T00:00:00Z"
    ), sentence
    status = process.board.find(process.world.name, 0, process.world.clock.now_ms())
    assert status is not None
    assert status["open_transaction"] == {
        "producer_id": 4000,
        "producer_epoch": 0,
        "start_offset": 1,
        "open_since": since,
        "last_timestamp": 0,
        "others": 0,
    }
    assert status["not_copied_reason"] == Reason.OPEN_TRANSACTION


def test_it_is_also_the_reason_for_not_trimming(process: Process) -> None:
    process.copy_all()
    process.world.broker.open_transaction(process.world.name, 0, Offset(1))
    worker = process.work()
    later(process, worker, NAMED_AFTER_S)
    assert process.status().not_trimmed_reason == Reason.OPEN_TRANSACTION
    assert "producer 4000" in (process.status().not_trimmed or "")


def test_a_short_transaction_is_not_reported(process: Process, counting: Counting, worker: PartitionWorker) -> None:
    assert later(process, worker, NAMED_AFTER_S - 1).endswith(TODAY.format(4))
    assert counting.asked == 0
    assert "producer" in later(process, worker, 1)


def test_the_broker_is_asked_once_a_minute_and_every_look_has_the_name(
    process: Process, counting: Counting, worker: PartitionWorker
) -> None:
    for _ in range(int(2 * ASK_EVERY_S)):
        assert later(process, worker, 1).count("producer 4000") == (counting.asked > 0)
    assert counting.asked == 2


@pytest.mark.parametrize("why", [AccessDenied("no"), InvalidRequest("too old"), BrokerUnavailable("away")])
def test_a_broker_that_does_not_say_it_leaves_the_sentence_as_it_is(
    process: Process, counting: Counting, worker: PartitionWorker, why: TierstateError
) -> None:
    process.world.broker.hide_transactions(why)
    for second in range(1, 31):
        assert later(process, worker, 1).endswith(TODAY.format(second))
    status = process.status()
    assert (status.last_error, status.consecutive_failures, status.open_transaction) == (None, 0, None)
    assert counting.asked == 1, "a refusal is not asked for again at once"
    process.world.broker.hide_transactions(None)
    assert "producer 4000" in later(process, worker, ASK_EVERY_S)


def test_the_next_transaction_has_its_own_name_and_its_own_age(process: Process, worker: PartitionWorker) -> None:
    world = process.world
    later(process, worker, 30)
    world.broker.open_transaction(world.name, 0, Offset(2), producer_id=4001)
    world.broker.open_transaction(world.name, 0, Offset(3), producer_id=4002)
    later(process, worker, ASK_EVERY_S)
    assert "(and 2 more are open)" in later(process, worker, 1)
    world.broker.open_transaction(world.name, 0, None)
    assert later(process, worker, 1).endswith(TODAY.format(0))
    assert process.status().open_transaction is None
    since = world.clock.now_ms()
    sentence = later(process, worker, 7)
    assert "for 7 s at least; it is of producer 4001, epoch 0, begins at offset 2 " in sentence
    assert process.status().open_transaction == PinnedBy(4001, 0, 2, since, 0, 1)


def test_a_transaction_above_the_last_stable_offset_does_not_hold_it(
    process: Process, counting: Counting, worker: PartitionWorker
) -> None:
    """The last stable offset has moved between the look and the question."""
    world = process.world

    def moves() -> None:
        world.broker.open_transaction(world.name, 0, None)
        world.broker.open_transaction(world.name, 0, Offset(2), producer_id=4001)

    counting.before_answer = moves
    assert later(process, worker, NAMED_AFTER_S).endswith(TODAY.format(5))
    assert counting.asked == 1


def test_an_act_does_not_wait_for_the_name(process: Process, counting: Counting) -> None:
    world = process.world
    world.broker.open_transaction(world.name, 0, Offset(world.bases[-1] - 1))
    worker = process.worker()
    acts = 0
    while True:
        world.clock.advance(NAMED_AFTER_S)
        if not worker.advance():
            break
        acts += 1
        assert counting.asked == 0
    assert acts > 2
    assert counting.asked == 1
