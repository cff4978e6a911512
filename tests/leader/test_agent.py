"""The agent's loop: new, deleted and failing partitions, one step at a time for each, and an orderly end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import pytest

from tests.leader.world import World
from tests.twins.manual_clock import ManualClock
from tierstate.leader.agent import ACTS_A_TURN, Agent
from tierstate.leader.discovery import Hosted
from tierstate.leader.schedule import Schedule
from tierstate.leader.status import PartitionStatus, StatusBoard
from tierstate.rules.reasons import Why
from tierstate.state.errors import BrokerUnavailable, StorageUnavailable, TierstateError, Unavailable
from tierstate.state.ids import TopicId, TopicIdPartition

TOPIC = TopicId.of(b"topic id of 16 b")


def partition(number: int) -> TopicIdPartition:
    return TopicIdPartition(TOPIC, number)


class Worker:
    """A partition with so many steps to take; ``refusals``: how often it fails before it takes them."""

    def __init__(self, place: TopicIdPartition, acts: int, journal: list[int], refusals: int = 0) -> None:
        self.partition, self.name = place, "t"
        self.acts, self.journal, self.refusals = acts, journal, refusals
        self.failures = self.behind = self.returns = 0
        self.last_error: str | None = None
        self.rested = 0
        self.barred: Why | None = None
        self.before_act: Callable[[], object] = lambda: None
        self.local_looks, self.answers_local_looks = 0, True
        self._busy = threading.Lock()

    def advance(self) -> bool:
        assert self._busy.acquire(blocking=False), "two threads in one partition"
        try:
            self.before_act()
            if self.refusals:
                self.refusals -= 1
                self.failures += 1
                self.last_error = "no answer"
                return False
            self.failures = 0
            if not self.acts:
                return False
            self.acts -= 1
            self.journal.append(self.partition.partition)
            return True
        finally:
            self._busy.release()

    def returned(self, kinds: Collection[type[TierstateError]]) -> None:
        self.returns += 1

    def look_at_local_log(self) -> bool:
        self.local_looks += 1
        return self.answers_local_looks

    def rest(self) -> None:
        self.rested += 1


class Loop:
    """An agent over scripted workers."""

    def __init__(self, *workers: tuple[int, int], concurrency: int = 1) -> None:
        self.journal: list[int] = []
        self.workers = {
            partition(number): Worker(partition(number), acts, self.journal, failures)
            for number, (acts, failures) in enumerate(workers)
        }
        self.hosted: dict[TopicIdPartition, Hosted] = {place: Hosted("t", True) for place in self.workers}
        self.answers: list[Exception] = []
        self.board = StatusBoard()
        self.clock = ManualClock()
        self.schedule = Schedule(self.clock, lambda place: 0)
        self.agent = Agent(self._hosted, self._new_worker, self.board, concurrency, self.schedule)
        self.stop = threading.Event()

    def _hosted(self) -> dict[TopicIdPartition, Hosted]:
        if self.answers:
            raise self.answers.pop(0)
        return dict(self.hosted)

    def _new_worker(self, place: TopicIdPartition, name: str) -> Any:
        return self.workers[place]


def test_run_once_does_everything_and_ends() -> None:
    loop = Loop((3, 0), (20, 0), (0, 0))
    loop.agent.run_once(loop.stop)
    assert sorted(loop.journal) == [0] * 3 + [1] * 20


def test_a_long_backlog_does_not_keep_the_others_waiting() -> None:
    loop = Loop((50, 0), (2, 0))
    queued = threading.Event()
    loop.workers[partition(0)].before_act = lambda: queued.wait(10)
    threading.Timer(0.5, queued.set).start()  # by then both are in the queue
    loop.agent.run_once(loop.stop)
    assert loop.journal.index(1) == ACTS_A_TURN
    assert sorted(loop.journal) == [0] * 50 + [1] * 2


def test_a_partition_that_appears_later_is_worked_on() -> None:
    loop = Loop((1, 0), (1, 0))
    later = loop.hosted.pop(partition(1))
    settle(loop)
    assert loop.journal == [0]
    loop.hosted[partition(1)] = later
    settle(loop)
    assert loop.journal == [0, 1]


def test_many_threads_never_meet_in_one_partition() -> None:
    loop = Loop((40, 0), (40, 0), (40, 0), concurrency=8)
    loop.agent.run_once(loop.stop)
    assert len(loop.journal) == 120


def test_run_once_tries_again_what_failed() -> None:
    loop = Loop((2, 1))
    loop.agent.run_once(loop.stop)
    assert loop.journal == [0, 0]


def test_run_once_ends_with_what_keeps_failing_after_doing_the_rest() -> None:
    loop = Loop((2, 99), (2, 0))
    with pytest.raises(Unavailable, match=r"partitions=t-0 because=no answer"):
        loop.agent.run_once(loop.stop)
    assert loop.journal == [1, 1]


def test_run_once_ends_with_the_error_of_a_cluster_that_stays_away() -> None:
    loop = Loop((2, 0))
    loop.answers = [BrokerUnavailable("nobody answers")] * 9
    with pytest.raises(BrokerUnavailable):
        loop.agent.run_once(loop.stop)
    assert loop.agent.last_error == "nobody answers"


def test_a_cluster_that_is_away_for_a_moment_is_waited_for() -> None:
    loop = Loop((2, 0))
    loop.answers = [BrokerUnavailable("nobody answers")]
    loop.agent.run_once(loop.stop)
    assert loop.journal == [0, 0]
    assert loop.agent.last_error is None


@pytest.mark.parametrize("once", [True, False])
def test_a_stop_ends_after_the_act_in_progress(once: bool) -> None:
    loop = Loop((1000, 0), (1000, 0))
    loop.workers[partition(0)].before_act = loop.stop.set
    (loop.agent.run_once if once else loop.agent.run)(loop.stop)
    assert loop.journal == [0]


@pytest.mark.parametrize("once", [True, False])
def test_a_bug_in_a_worker_ends_the_agent_loudly(once: bool) -> None:
    loop = Loop((1, 0), (1, 0))

    def bug() -> None:
        raise ZeroDivisionError

    loop.workers[partition(0)].before_act = bug
    with pytest.raises(ZeroDivisionError):
        (loop.agent.run_once if once else loop.agent.run)(loop.stop)


def test_a_bug_in_one_worker_leaves_the_backlog_of_another() -> None:
    loop = Loop((1, 0), (1_000_000, 0), concurrency=2)

    def bug() -> None:
        assert wait_for(lambda: loop.journal)
        raise ZeroDivisionError

    loop.workers[partition(0)].before_act = bug
    with pytest.raises(ZeroDivisionError):
        loop.agent.run(loop.stop)
    assert loop.workers[partition(1)].acts


def wait_for(look: Callable[[], object]) -> bool:
    """Return whether ``look`` becomes true within ten seconds."""
    for _ in range(1000):
        if look():
            return True
        time.sleep(0.01)
    return False


def settle(loop: Loop) -> None:
    """Reconcile, and wait until no partition is worked on."""
    loop.agent.reconcile(loop.stop)
    assert loop.agent.wait_idle(10)


def test_a_partition_that_moves_away_rests_and_one_that_is_gone_leaves_the_board() -> None:
    loop = Loop((1, 0), (1, 0))
    settle(loop)
    for place in loop.workers:
        loop.board.put(place, PartitionStatus("t", place.partition, TOPIC, leads=True))
    loop.hosted[partition(0)] = Hosted("t", False)
    del loop.hosted[partition(1)]
    settle(loop)
    assert loop.workers[partition(0)].rested == 1
    assert loop.workers[partition(1)].rested == 1
    assert [status.partition for status in loop.board.all()] == [0]
    loop.stop.set()
    loop.agent.run(loop.stop)


def test_a_partition_is_looked_at_when_something_calls_and_not_at_every_turn() -> None:
    loop = Loop((0, 0), (0, 0))
    looks: list[int] = []
    for number, worker in enumerate(loop.workers.values()):
        worker.before_act = partial(looks.append, number)
    settle(loop)
    assert looks == [0, 1]
    settle(loop)
    assert looks == [0, 1]
    loop.schedule.call([partition(1)])
    settle(loop)
    assert looks == [0, 1, 1]
    loop.stop.set()
    loop.agent.run(loop.stop)


def test_partitions_that_wait_for_the_store_are_looked_at_on_its_return() -> None:
    loop = Loop((1, 4), (0, 0))
    for _ in range(4):
        loop.schedule.call_all()
        settle(loop)
    settle(loop)
    assert loop.journal == []
    loop.agent.returned(StorageUnavailable)
    settle(loop)
    assert loop.journal == [0]
    assert [worker.returns for worker in loop.workers.values()] == [1, 0]
    settle(loop)
    assert loop.workers[partition(0)].returns == 1, "once"


def test_looks_that_events_call_for_use_every_thread() -> None:
    loop, meeting = Loop(*[(0, 0)] * 4, concurrency=4), threading.Barrier(4)
    for worker in loop.workers.values():
        worker.before_act = lambda: meeting.wait(10)
    settle(loop)
    assert not meeting.broken
    loop.schedule.call(loop.workers)
    settle(loop)
    assert not meeting.broken


def test_looks_that_only_time_calls_for_go_through_one_thread() -> None:
    loop, inside, most = Loop(*[(0, 0)] * 8, concurrency=4), list[int](), list[int]()
    settle(loop)

    def look() -> None:
        inside.append(1)
        time.sleep(0.01)
        most.append(len(inside))
        inside.pop()

    for worker in loop.workers.values():
        worker.before_act = look
    loop.clock.advance(1000)
    settle(loop)
    assert most == [1] * 8


def test_a_long_look_delays_no_other_beyond_the_next_reconcile() -> None:
    loop, looked, go_on = Loop(*[(0, 0)] * 3, concurrency=2), set[int](), threading.Event()
    settle(loop)
    loop.workers[partition(0)].before_act = lambda: go_on.wait(30)
    for number in (1, 2):
        loop.workers[partition(number)].before_act = partial(looked.add, number)
    loop.clock.advance(1000)
    loop.agent.reconcile(loop.stop)
    loop.agent.reconcile(loop.stop)
    assert wait_for(lambda: looked == {1, 2})
    go_on.set()
    assert loop.agent.wait_idle(10)
    loop.stop.set()
    loop.agent.run(loop.stop)


def test_a_partition_that_does_not_lead_rests_once() -> None:
    loop = Loop((0, 0))
    loop.hosted[partition(0)] = Hosted("t", False)
    settle(loop)
    settle(loop)
    assert loop.workers[partition(0)].rested == 1
    loop.stop.set()
    loop.agent.run(loop.stop)


def test_a_partition_that_loses_its_leader_takes_no_further_act() -> None:
    loop = Loop((1000, 0))

    def lose() -> None:
        if len(loop.journal) == 3:
            loop.hosted[partition(0)] = Hosted("t", False)
            loop.agent.reconcile(loop.stop)

    loop.workers[partition(0)].before_act = lose
    settle(loop)
    settle(loop)
    assert loop.journal == [0] * 4
    assert loop.workers[partition(0)].rested == 1
    loop.stop.set()
    loop.agent.run(loop.stop)


def test_a_topic_whose_settings_changed_is_looked_at_again() -> None:
    loop = Loop((0, 0))
    looks: list[int] = []
    loop.workers[partition(0)].before_act = lambda: looks.append(0)
    changes = [set[str](), {"t"}, set[str](), set[str]()]
    loop.agent = Agent(loop._hosted, loop._new_worker, loop.board, 1, loop.schedule, lambda due, topics: changes.pop(0))
    for _ in range(3):
        settle(loop)
    assert looks == [0, 0]
    loop.stop.set()
    changes.append(set())
    loop.agent.run(loop.stop)


def test_a_partition_that_goes_while_it_is_worked_on_leaves_the_board_when_that_is_over() -> None:
    """A status that its worker writes last must not stay for ever."""
    loop = Loop((1, 0))
    working, go_on = threading.Event(), threading.Event()
    place = partition(0)

    def wait() -> None:
        working.set()
        assert go_on.wait(10)
        loop.board.put(place, PartitionStatus("t", 0, TOPIC, leads=True))

    loop.workers[place].before_act = wait
    loop.agent.reconcile(loop.stop)
    assert working.wait(10)
    loop.hosted = {}
    loop.agent.reconcile(loop.stop)
    go_on.set()
    assert loop.agent.wait_idle(10)
    settle(loop)
    assert loop.board.all() == []
    loop.stop.set()
    loop.agent.run(loop.stop)


def test_an_agent_on_a_real_folder_copies_and_trims(world: World) -> None:
    process = world.process()
    agent = Agent(
        lambda: {world.partition: Hosted(world.name, True)},
        lambda place, name: process.worker(),
        process.board,
        concurrency=2,
        schedule=Schedule(world.clock, lambda place: 0),
    )
    agent.run_once(threading.Event())
    assert world.local_start() == world.bases[-1]
    status = process.board.find(world.name, 0, world.clock.now_ms())
    assert status is not None
    assert status["copied_to"] == world.bases[-1] - 1
    assert process.board.find(world.name, 1, world.clock.now_ms()) is None
