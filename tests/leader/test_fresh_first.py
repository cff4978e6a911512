"""Partitions that rolled just now are served before those that catch up, and none starves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.leader.turns import Desk
from tests.leader.world import TRIMS_ALL, World
from tests.twins.manual_clock import ManualClock
from tierstate.leader.agent import ACTS_A_TURN, CATCHING_UP, FRESH_IN_A_ROW, Agent, ReadyQueue
from tierstate.leader.discovery import Hosted
from tierstate.leader.schedule import Schedule
from tierstate.leader.status import StatusBoard
from tierstate.state.ids import TopicId, TopicIdPartition

BACKLOG = 1000


def partition(number: int) -> TopicIdPartition:
    return TopicIdPartition(TopicId.of(b"topic id of 16 b"), number)


class Copier:
    """A partition with ``behind`` segments to copy; others may roll while it copies one."""

    def __init__(self, number: int, behind: int, journal: list[int]) -> None:
        self.partition, self.name, self.behind, self._journal = partition(number), "t", behind, journal
        self.failures, self.last_error, self.barred = 0, None, None
        self.while_copying: Callable[[], object] = lambda: None

    def advance(self) -> bool:
        if not self.behind:
            return False
        self.while_copying()
        self.behind -= 1
        self._journal.append(self.partition.partition)
        return True

    def look_at_local_log(self) -> bool:
        return True

    def rest(self) -> None:
        raise AssertionError("all of them lead")


class Floor:
    """An agent over so many copiers; the first ``backlogs`` have a thousand segments each."""

    def __init__(self, partitions: int, backlogs: int, concurrency: int = 1) -> None:
        self.journal: list[int] = []
        self.copiers = [
            Copier(number, BACKLOG if number < backlogs else 0, self.journal) for number in range(partitions)
        ]
        hosted = {each.partition: Hosted("t", True) for each in self.copiers}

        def new_worker(place: TopicIdPartition, name: str) -> Any:
            return self.copiers[place.partition]

        self.schedule = Schedule(ManualClock(), lambda place: 0)
        self.agent = Agent(lambda: hosted, new_worker, StatusBoard(), concurrency, self.schedule)
        self.stop = threading.Event()

    def roll_while_copying(self, copier: int, at: int, rolling: list[int]) -> None:
        """Once ``at`` segments are copied, these roll while ``copier`` copies its next one, and the agent notices."""

        def roll() -> None:
            if len(self.journal) >= at and rolling:
                for number in rolling:
                    self.copiers[number].behind += 1
                    self.schedule.call([self.copiers[number].partition])
                rolling.clear()
                self.agent.reconcile(self.stop)

        self.copiers[copier].while_copying = roll

    def work(self, lined_up: Callable[[], object] = lambda: None) -> None:
        self.agent.reconcile(self.stop)
        lined_up()
        assert self.agent.wait_idle(60)
        self.stop.set()
        self.agent.run(self.stop)


def test_partitions_that_roll_now_go_before_a_thousand_segments_of_another() -> None:
    floor = Floor(partitions=6, backlogs=1)
    floor.roll_while_copying(0, at=20, rolling=[1, 2, 3, 4, 5])
    floor.work()
    assert floor.journal[:26] == [0] * 21 + [1, 2, 3, 4, 5]
    assert floor.journal[26:] == [0] * (BACKLOG - 21)


def test_they_go_before_all_of_several_backlogs() -> None:
    floor = Floor(partitions=8, backlogs=4)
    floor.roll_while_copying(2, at=100, rolling=[4, 5, 6, 7])
    floor.work()
    at = floor.journal.index(4)
    assert floor.journal[at - 1 : at + 4] == [2, 4, 5, 6, 7]
    assert at - 1 == 100 + floor.journal[100:].index(2)
    assert len(floor.journal) == 4 * BACKLOG + 4


def test_backlogs_share_the_threads_evenly() -> None:
    floor, all_there = Floor(partitions=3, backlogs=3), threading.Event()
    floor.copiers[0].while_copying = all_there.wait
    floor.work(lined_up=all_there.set)
    for until in range(100, 3 * BACKLOG, 100):
        shares = [floor.journal[:until].count(number) for number in range(3)]
        assert max(shares) - min(shares) <= ACTS_A_TURN


def test_a_backlog_has_a_turn_however_many_fresh_ones_wait() -> None:
    queue: ReadyQueue[str] = ReadyQueue()
    queue.put("behind", catching_up=True)
    taken = []
    for number in range(30):
        queue.put(f"fresh {number}", catching_up=False)
        taken.append(queue.take())
    assert taken.index("behind") == FRESH_IN_A_ROW
    assert [each for each in taken if each != "behind"] == [f"fresh {number}" for number in range(29)]


def test_without_a_backlog_the_first_to_come_is_the_first_to_go() -> None:
    queue: ReadyQueue[int] = ReadyQueue()
    for number in range(30):
        queue.put(number, catching_up=False)
    assert [queue.take() for _ in range(30)] == list(range(30))
    assert not queue.fresh_waits
    with pytest.raises(IndexError):
        queue.take()


def test_a_worker_knows_how_far_it_is_behind_from_its_first_look(new_world: Callable[..., World]) -> None:
    """The first step of a partition is to begin a term: it is cheap, and then its place in the queue is known."""
    world = new_world("none", TRIMS_ALL)
    desk = Desk(world.process())
    assert desk.worker.behind == 0
    assert desk.one_at_a_time(1) == ["term"]
    assert desk.worker.behind == len(world.rolled) > CATCHING_UP
    desk.work()
    assert desk.worker.behind == 0
