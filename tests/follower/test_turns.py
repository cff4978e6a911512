"""Without a tail, a view moves in the calls of its user only, and no time passes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.follower.said import PARTITIONS, Topic, elected, log_start, partition
from tests.leader.world import FaultyTopic
from tests.twins.manual_clock import ManualClock
from tierstate.follower.as_of import LOOK_S, MAX_AGE_MS
from tierstate.follower.follower import Follower
from tierstate.follower.following import Following
from tierstate.follower.open import open_view
from tierstate.runtime.listener import Event, ViewRebuilt
from tierstate.schemas.codec import encode_fact
from tierstate.state.errors import BrokerUnavailable, ViewBehind
from tierstate.state.keys import key_of, tier_partition_of
from tierstate.state.offsets import Position
from tierstate.state.view import READY_AGE_S

NUMBER = tier_partition_of(partition(0), PARTITIONS)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def follower(said: Topic, clock: ManualClock, events: list[Event]) -> Follower:
    return open_view(said.topic, "cluster", clock, Following(tail=False, listener=events.append))


def rebuilt(events: list[Event]) -> list[str]:
    return [event.reason for event in events if isinstance(event, ViewRebuilt)]


@pytest.fixture
def others() -> list[threading.Thread]:
    """Return the threads that ran before the follower was made: tests of streams leave a tail behind."""
    return threading.enumerate()


def test_records_are_applied_by_one_call_and_counted(
    others: list[threading.Thread], said: Topic, follower: Follower
) -> None:
    leader = elected(0, 3, 1)
    said.say(log_start(0, 7, leader, said.say(leader)))
    assert follower.partition(partition(0)).leader is None
    assert follower.advance() == 2
    assert follower.advance() == 0
    assert follower.partition(partition(0)).log_start == 7
    assert "follower" not in {thread.name for thread in threading.enumerate() if thread not in others}


def test_waiting_makes_as_many_calls_as_it_needs(said: Topic, follower: Follower) -> None:
    position = said.say(elected(0, 3, 1))
    follower.wait_applied(NUMBER, position, 0)
    assert follower.store.position(NUMBER) == 1


def test_waiting_for_what_does_not_come_raises_at_once_and_time_stands_still(
    follower: Follower, clock: ManualClock
) -> None:
    before = clock.monotonic()
    with pytest.raises(ViewBehind, match="position=9 applied=0"):
        follower.wait_applied(NUMBER, Position(9), 1e9)
    assert clock.monotonic() == before


def test_ready_is_an_end_captured_in_the_last_six_hours(said: Topic, follower: Follower, clock: ManualClock) -> None:
    follower.require_ready(NUMBER)
    said.say(elected(0, 3, 1))
    clock.advance(READY_AGE_S - 1)
    follower.require_ready(NUMBER)
    assert follower.store.position(NUMBER) == 0
    clock.advance(2)
    follower.require_ready(NUMBER)
    assert follower.store.position(NUMBER) == 1


def idle(clock: ManualClock) -> tuple[FaultyTopic, Follower, list[float]]:
    """Return a follower that reached the end before a fresh view was wanted, and the times when ends were asked for."""
    topic, times = FaultyTopic(), list[float]()
    topic.on_end = lambda: times.append(clock.monotonic())
    follower = open_view(topic, "cluster", clock, Following(tail=False))
    follower.advance(), follower.advance()
    return topic, follower, times


def test_an_unused_view_is_as_fresh_as_its_tail_made_it(clock: ManualClock) -> None:
    """A reader that begins only once the topic is away goes on from the tail's view."""

    def away() -> None:
        raise BrokerUnavailable("no answer")

    topic, follower, _ = idle(clock)
    topic.on_end = away
    clock.advance(READY_AGE_S - 1)
    follower.require_ready(0)
    clock.advance(1)
    with pytest.raises(BrokerUnavailable):
        follower.require_ready(0)


def test_an_end_reached_before_other_partitions_were_wanted_does_not_count(clock: ManualClock) -> None:
    """An end that was asked for before, and is reached only now, does not count, either."""
    _, follower, times = idle(clock)
    times.clear()
    follower.require_ready(0)
    assert times == []
    clock.advance(LOOK_S)
    follower.advance()
    assert len(times) == 1
    follower.reconsider()
    follower.advance()
    follower.require_ready(0)
    assert len(times) == 2


def test_a_caller_that_wants_a_fresh_view_notices_a_truncated_topic(
    said: Topic, follower: Follower, events: list[Event]
) -> None:
    leader = elected(0, 3, 1)
    said.say(log_start(0, 7, leader, said.say(leader)))
    follower.require_fresh(NUMBER, 0)
    said.topic.truncate(NUMBER, 1)
    follower.require_fresh(NUMBER, 0)
    assert follower.partition(partition(0)).log_start is None
    assert len(rebuilt(events)) == 1


def test_a_topic_whose_end_is_below_the_view_makes_nothing_fresh(clock: ManualClock, events: list[Event]) -> None:
    """The tail saw the facts that are gone; only the end that is asked for later shows that they are."""
    topic = FaultyTopic()
    follower = open_view(topic, "cluster", clock, Following(tail=False, listener=events.append))
    for number in (1, 2):
        topic.append(0, key_of(elected(0, 3, number)), encode_fact(elected(0, 3, number)))
    follower.require_fresh(0, 0)
    truncations = iter([lambda: topic.truncate(0, 1)])
    topic.on_end = lambda: next(truncations, lambda: None)()
    follower.require_fresh(0, 0)
    assert len(list(follower.facts(partition(0)))) == 1
    assert "past the end" in rebuilt(events)[0]


def test_a_truncated_topic_that_has_grown_again_is_noticed_by_its_epoch(
    said: Topic, clock: ManualClock, tmp_path: Path
) -> None:
    leader = elected(0, 3, 1)
    at = said.say(leader)
    said.say(log_start(0, 7, leader, at))
    first = open_view(said.topic, "cluster", clock, Following(tail=False), state_dir=tmp_path)
    first.require_fresh(NUMBER, 0)
    first.close()
    said.topic.truncate(NUMBER, 1)
    said.say(log_start(0, 5, leader, at, counter=2)), said.say(log_start(0, 6, leader, at, counter=3))
    said.topic.compacted.add((NUMBER, 1))  # the record that would show it is compacted away
    events: list[Event] = []
    again = open_view(said.topic, "cluster", clock, Following(tail=False, listener=events.append), state_dir=tmp_path)
    again.require_fresh(NUMBER, 0)
    assert again.partition(partition(0)).log_start == 6
    assert "truncated" in rebuilt(events)[0]
    again.close()


def test_a_running_view_that_was_cut_off_too_long_is_rebuilt_before_it_answers(
    said: Topic, follower: Follower, clock: ManualClock, events: list[Event]
) -> None:
    said.say(elected(0, 3, 1))
    follower.require_fresh(NUMBER, 0)
    clock.advance(MAX_AGE_MS / 1000 + 61)
    said.say(elected(0, 4, 2))
    follower.require_fresh(NUMBER, 1e12)
    assert "too long ago" in rebuilt(events)[0]
    assert follower.store.position(NUMBER) == 2


def test_a_running_view_keeps_its_age_down_by_itself(
    said: Topic, follower: Follower, clock: ManualClock, events: list[Event]
) -> None:
    said.say(elected(0, 3, 1))
    for _ in range(40):
        clock.advance(24 * 3600)
        follower.advance(), follower.advance()
    assert rebuilt(events) == []
    assert clock.now_ms() - follower.store.as_of(NUMBER) <= 24 * 3600 * 1000


def test_the_age_of_a_view_counts_from_the_question_for_its_end(
    said: Topic, follower: Follower, clock: ManualClock
) -> None:
    said.say(elected(0, 3, 1))
    follower.advance()
    then = clock.now_ms()
    follower.advance()
    clock.advance(50)
    follower.advance()
    assert follower.store.as_of(NUMBER) == then


def test_a_view_of_unknown_age_is_rebuilt(said: Topic, clock: ManualClock, tmp_path: Path) -> None:
    said.say(elected(0, 3, 1))
    first = open_view(said.topic, "cluster", clock, Following(tail=False), state_dir=tmp_path)
    first.require_fresh(NUMBER, 0)
    first.store.mark_as_of(NUMBER, 0)
    first.close()
    events: list[Event] = []
    open_view(said.topic, "cluster", clock, Following(tail=False, listener=events.append), state_dir=tmp_path).close()
    assert "nobody knows" in rebuilt(events)[0]
