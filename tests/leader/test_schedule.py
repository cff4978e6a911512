"""The schedule of looks at a partition: at once when an event calls, else less and less often, but often enough."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from tests.twins.manual_clock import ManualClock
from tierstate.leader.schedule import LONGEST_S, WAITING_S, Schedule
from tierstate.runtime.listener import FactsApplied, ViewRebuilt
from tierstate.state.ids import TopicId, TopicIdPartition

TOPIC = TopicId.of(b"topic id of 16 b")


def partition(number: int) -> TopicIdPartition:
    return TopicIdPartition(TOPIC, number)


@dataclass
class Watched:
    """Partitions that are looked at as soon as they are due, by a clock that moves in steps of a quarter second."""

    partitions: int = 1
    clock: ManualClock = field(default_factory=ManualClock)
    failures: int = 0

    def __post_init__(self) -> None:
        self.schedule = Schedule(self.clock, lambda place: place.partition // 10)
        self.began = self.clock.monotonic()
        self.looks: dict[int, list[float]] = {number: [] for number in range(self.partitions)}
        for number in range(self.partitions):
            self.schedule.follow(partition(number))

    def go_on(self, seconds: float) -> list[float]:
        """Return when partition 0 was looked at, in seconds from the beginning."""
        for _ in range(round(seconds * 4)):
            for place in self.schedule.due((), 10_000):
                self.looks[place.partition].append(self.clock.monotonic() - self.began)
                self.schedule.looked(place, self.failures)
            self.clock.advance(0.25)
        return self.looks[0]


def test_the_longer_nothing_happens_the_rarer_are_the_looks() -> None:
    looks = Watched().go_on(600)
    waits = [later - earlier for earlier, later in pairwise(looks)]
    assert looks[:4] == [0, 1, 2, 3]
    assert len(looks) < 20
    assert waits[:-1] == sorted(waits[:-1])  # the last one ends at the turn of its group


@pytest.mark.parametrize("delay", [2.0, 60.0, 400.0, 3600.0])
def test_a_delayed_effect_is_noticed_at_most_half_as_late_again(delay: float) -> None:
    looks = Watched().go_on(2 * delay + LONGEST_S)
    noticed = next(at for at in looks if at >= delay)
    assert noticed - delay <= min(LONGEST_S, 0.5 * delay) + 0.25


def test_no_hint_is_needed_for_a_look_every_five_minutes() -> None:
    watched = Watched()
    watched.go_on(7200)
    late = [at for at in watched.looks[0] if at > 1000]
    assert max(b - a for a, b in pairwise(late)) <= LONGEST_S + 0.25
    assert len(late) >= (7200 - 1000) // LONGEST_S - 1


def test_partitions_of_a_group_are_looked_at_together_and_groups_apart() -> None:
    watched = Watched(partitions=100)
    watched.go_on(7200)
    last = {number: looks[-1] for number, looks in watched.looks.items()}
    times = {group: {last[number] for number in range(10 * group, 10 * group + 10)} for group in range(10)}
    assert all(len(each) == 1 for each in times.values())
    spread = sorted(at % LONGEST_S for each in times.values() for at in each)
    assert min(b - a for a, b in pairwise(spread)) > LONGEST_S / 30


def test_a_call_is_answered_at_once_and_looks_are_frequent_again() -> None:
    watched = Watched()
    watched.go_on(1000)
    before = len(watched.looks[0])
    watched.schedule.call([partition(0)])
    looks = watched.go_on(4)
    assert [at - 1000 for at in looks[before:]] == [0, 1, 2, 3]


def test_a_call_during_a_look_leads_to_another_one() -> None:
    watched = Watched()
    schedule = watched.schedule
    assert schedule.due((), 10) == [partition(0)]
    schedule.call([partition(0)])
    assert schedule.due({partition(0)}, 10) == []
    schedule.looked(partition(0), 0)
    assert schedule.due((), 10) == [partition(0)]


def test_looks_beyond_the_limit_come_next() -> None:
    schedule = Watched(partitions=5).schedule
    assert [len(schedule.due((), 2)) for _ in range(4)] == [2, 2, 1, 0]


def test_facts_that_land_call_for_their_partitions_and_a_new_view_for_all() -> None:
    watched = Watched(partitions=3)
    watched.go_on(1007)
    watched.schedule.listen(FactsApplied(0, 1, 7, frozenset({partition(2), partition(9)})))
    assert watched.schedule.due((), 10) == [partition(2)]
    watched.schedule.listen(ViewRebuilt("lost"))
    assert watched.schedule.due((), 10) == [partition(number) for number in range(3)]


def test_failed_and_waiting_partitions_are_looked_at_every_few_seconds() -> None:
    failing = Watched(failures=5)
    failing.go_on(900)
    assert len(failing.looks[0]) == 900 / WAITING_S
    waiting = Watched()
    waiting.schedule.wait_for_it(partition(0), True)
    waiting.go_on(900)
    assert len(waiting.looks[0]) >= 900 / WAITING_S
    waiting.schedule.wait_for_it(partition(0), False)
    before = len(waiting.looks[0])
    assert len(waiting.go_on(900)) - before <= 5


def test_a_dropped_partition_is_not_looked_at() -> None:
    watched = Watched()
    watched.go_on(10)
    before = len(watched.looks[0])
    watched.schedule.drop(partition(0))
    watched.schedule.call([partition(0)])
    assert len(watched.go_on(100)) == before
