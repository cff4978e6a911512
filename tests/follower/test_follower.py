"""The follower tails, resumes, rebuilds, and knows when it is fresh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.follower.said import PARTITIONS, Topic, elected, log_start, partition
from tests.twins.manual_clock import ManualClock
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.broker.tier_topic import TierReader
from tierstate.follower.follower import Follower
from tierstate.follower.following import Following
from tierstate.follower.open import open_view
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.listener import Event, ViewRebuilt
from tierstate.state.errors import BrokerUnavailable, ViewBehind
from tierstate.state.offsets import Position

Follow = Callable[[MemoryTierTopic], Follower]


def test_a_fact_is_seen_once_its_position_is_waited_for(said: Topic, follow: Follow) -> None:
    follower = follow(said.topic)
    leader = elected(0, 3, 1)
    position = said.say(leader)
    follower.wait_applied(follower.tier_partition(partition(0)), position, 10)
    assert follower.partition(partition(0)).leader == leader


def test_a_fresh_view_has_every_fact_written_before_it_was_asked_for(said: Topic, follow: Follow) -> None:
    follower = follow(said.topic)
    leader = elected(0, 3, 1)
    at = said.say(leader)
    for offset in range(200):
        said.say(log_start(0, offset, leader, at, counter=offset))
    follower.require_fresh(follower.tier_partition(partition(0)), 0)
    assert follower.partition(partition(0)).log_start == 199


def test_waiting_for_what_never_comes_says_how_far_the_view_is(said: Topic, follow: Follow) -> None:
    follower = follow(said.topic)
    with pytest.raises(ViewBehind, match="position=5 applied=0"):
        follower.wait_applied(0, Position(5), 0.05)


class DeafTopic(MemoryTierTopic):
    """A topic whose end can no longer be asked for."""

    def end(self, tier_partition: int) -> Position:
        raise BrokerUnavailable("Kafka does not answer")


def test_a_view_whose_end_cannot_be_captured_is_not_fresh(tmp_path: Path) -> None:
    follower = open_view(DeafTopic(PARTITIONS), "cluster", SystemClock())
    with pytest.raises(BrokerUnavailable):
        follower.require_fresh(0, 60)
    follower.close()


def test_a_restart_resumes_and_does_not_replay(said: Topic, tmp_path: Path) -> None:
    leader = elected(0, 3, 1)
    said.say(leader)
    number = said.number(f"{partition(0).topic_id}/0/")
    first = open_view(said.topic, "cluster", SystemClock(), state_dir=tmp_path)
    first.require_fresh(number, 0)
    first.close()
    events: list[Event] = []
    again = open_view(said.topic, "cluster", SystemClock(), Following(listener=events.append), state_dir=tmp_path)
    assert again.store.position(number) == 1
    assert again.partition(partition(0)).leader == leader
    again.close()
    assert not [event for event in events if isinstance(event, ViewRebuilt)]


def test_another_topic_of_the_same_name_rebuilds_the_view(said: Topic, tmp_path: Path) -> None:
    said.say(elected(0, 3, 1))
    number = said.number(f"{partition(0).topic_id}/0/")
    first = open_view(said.topic, "cluster", SystemClock(), state_dir=tmp_path)
    first.require_fresh(number, 0)
    first.close()
    other = Topic(MemoryTierTopic(PARTITIONS, topic_id="AAAAAAAAAAAAAAAAAAAAAw"))
    other.say(elected(0, 9, 2))
    events: list[Event] = []
    again = open_view(other.topic, "cluster", SystemClock(), Following(listener=events.append), state_dir=tmp_path)
    leader = again.partition(partition(0)).leader
    assert leader is not None
    assert leader.epoch == 9
    again.close()
    assert [event for event in events if isinstance(event, ViewRebuilt)]
    assert len([entry for entry in (tmp_path / "view").iterdir() if entry.name.isdigit()]) == 1


def test_a_truncated_topic_rebuilds_the_view(tmp_path: Path) -> None:
    topic = MemoryTierTopic(PARTITIONS)
    said = Topic(topic)
    leader = elected(0, 3, 1)
    at = said.say(leader)
    said.say(log_start(0, 5, leader, at))
    number = said.number(f"{partition(0).topic_id}/0/")
    events: list[Event] = []
    follower = open_view(topic, "cluster", SystemClock(), Following(listener=events.append), state_dir=tmp_path)
    follower.require_fresh(number, 0)
    assert follower.partition(partition(0)).log_start == 5
    topic.truncate(number, 1)
    for _ in range(200):
        if follower.partition(partition(0)).log_start is None:
            break
        SystemClock().sleep(0.05)
    assert follower.partition(partition(0)).log_start is None
    assert follower.partition(partition(0)).leader == leader
    follower.close()
    assert [event for event in events if isinstance(event, ViewRebuilt)][-1].reason.startswith("position is past")


def test_a_rebuild_that_was_killed_leaves_no_view_behind(said: Topic, tmp_path: Path) -> None:
    said.say(elected(0, 3, 1))

    class Killed(Exception):
        pass

    class DyingTopic(MemoryTierTopic):
        def reader(self, positions: Mapping[int, Position], epochs: Mapping[int, int] | None = None) -> TierReader:
            raise Killed

    dying = DyingTopic(PARTITIONS)
    Topic(dying).say(elected(0, 3, 1))
    with pytest.raises(Killed):
        open_view(dying, "cluster", SystemClock(), state_dir=tmp_path)
    assert not (tmp_path / "view" / "CURRENT").exists()


@pytest.mark.parametrize(("days", "rebuilt"), [(14, False), (16, True)])
def test_a_view_that_slept_for_half_the_life_of_tombstones_is_rebuilt(
    said: Topic, tmp_path: Path, days: int, rebuilt: bool
) -> None:
    said.say(elected(0, 3, 1))
    number = said.number(f"{partition(0).topic_id}/0/")
    clock = ManualClock()
    first = open_view(said.topic, "cluster", clock, state_dir=tmp_path)
    first.require_fresh(number, 0)
    first.close()
    clock.advance(days * 24 * 3600)
    events: list[Event] = []
    open_view(said.topic, "cluster", clock, Following(listener=events.append), state_dir=tmp_path).close()
    assert bool([event for event in events if isinstance(event, ViewRebuilt)]) is rebuilt
