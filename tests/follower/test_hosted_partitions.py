"""A view that keeps some partitions only: it has no fact of the others, and reads one that is added as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.follower.said import PARTITIONS, Topic, elected, log_start, partition
from tests.twins.manual_clock import ManualClock
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.broker.tier_topic import TierReader
from tierstate.follower.digests import digests_of
from tierstate.follower.follower import Follower
from tierstate.follower.following import Following
from tierstate.follower.open import open_view
from tierstate.runtime.listener import Event, ViewRebuilt
from tierstate.state.errors import BrokerUnavailable, ViewBehind
from tierstate.state.facts import LeaderElected
from tierstate.state.ids import TopicIdPartition
from tierstate.state.keys import TOPIC_META_KEY, tier_partition_of
from tierstate.state.offsets import Position

NUMBER = tier_partition_of(partition(0), PARTITIONS)
MINE, THEIRS, LATER = [number for number in range(99) if tier_partition_of(partition(number), PARTITIONS) == NUMBER][:3]


class Hosted:
    """The partitions that this broker hosts, and a follower on disk that can be reopened."""

    def __init__(self, topic: MemoryTierTopic, state: Path) -> None:
        self.topic, self.state = topic, state
        self.users = {MINE}
        self.events: list[Event] = []
        self.follower = self.open()

    def keep(self, tier_partition: int, user: TopicIdPartition) -> bool:
        assert tier_partition == NUMBER
        return user.partition in self.users

    def open(self) -> Follower:
        return open_view(
            self.topic,
            "cluster",
            ManualClock(),
            Following(keep=self.keep, tail=False, listener=self.events.append),
            state_dir=self.state,
        )

    def restart(self) -> None:
        self.follower.close()
        self.follower = self.open()

    def host(self, *users: int) -> None:
        self.users = set(users)
        self.follower.reconsider()


@pytest.fixture
def hosted(said: Topic, tmp_path: Path) -> Iterator[Hosted]:
    state = Hosted(said.topic, tmp_path)
    yield state
    state.follower.close()


def speak(said: Topic, user: int, epoch: int = 1) -> LeaderElected:
    leader = elected(user, epoch, 10 * user + epoch)
    said.say(log_start(user, 100 * epoch, leader, said.say(leader)))
    return leader


def test_nothing_stands_of_a_partition_that_is_not_hosted_and_asking_for_it_is_refused(
    said: Topic, hosted: Hosted
) -> None:
    speak(said, MINE), speak(said, THEIRS)
    hosted.follower.require_fresh(NUMBER, 0)
    assert hosted.follower.partitions() == [partition(MINE)]
    assert hosted.follower.partition(partition(MINE)).log_start == 100
    for ask in (hosted.follower.partition, hosted.follower.facts):
        with pytest.raises(ViewBehind, match="does not keep"):
            ask(partition(THEIRS))


def test_a_partition_that_becomes_hosted_is_complete_at_once_and_after_a_restart(said: Topic, hosted: Hosted) -> None:
    speak(said, MINE), speak(said, THEIRS)
    hosted.follower.require_fresh(NUMBER, 3600)
    hosted.host(MINE, THEIRS)
    with pytest.raises(ViewBehind):
        hosted.follower.partition(partition(THEIRS))
    hosted.follower.require_fresh(NUMBER, 3600)  # the end that was captured before does not count
    assert hosted.follower.partition(partition(THEIRS)).log_start == 100
    speak(said, THEIRS, epoch=2)
    hosted.restart()
    hosted.follower.require_fresh(NUMBER, 0)
    view = hosted.follower.partition(partition(THEIRS))
    assert (view.log_start, len(hosted.follower.facts(partition(THEIRS)))) == (200, 4)
    assert not [event for event in hosted.events[1:] if isinstance(event, ViewRebuilt)]
    whole = open_view(said.topic, "cluster", ManualClock(), Following(tail=False))
    whole.require_fresh(NUMBER, 0)
    assert digests_of(hosted.follower.store) == digests_of(whole.store)


def test_a_partition_that_became_hosted_while_the_process_was_down_is_taken_back(said: Topic, hosted: Hosted) -> None:
    speak(said, THEIRS)
    hosted.follower.require_fresh(NUMBER, 0)
    hosted.users = {THEIRS}
    hosted.restart()
    hosted.follower.require_fresh(NUMBER, 0)
    assert hosted.follower.partition(partition(THEIRS)).log_start == 100


def test_a_partition_that_is_hosted_again_comes_back_with_all_later_facts(said: Topic, hosted: Hosted) -> None:
    speak(said, MINE)
    hosted.follower.require_fresh(NUMBER, 0)
    hosted.host()
    hosted.follower.require_fresh(NUMBER, 0)
    assert hosted.follower.partitions() == []
    speak(said, MINE, epoch=2)
    hosted.follower.require_fresh(NUMBER, 0)
    assert list(hosted.follower.store.entries()) == []
    hosted.restart()
    hosted.host(MINE)
    hosted.follower.require_fresh(NUMBER, 0)
    assert hosted.follower.partition(partition(MINE)).log_start == 200


def test_the_other_partitions_stand_untouched_while_one_is_taken_back(said: Topic, hosted: Hosted) -> None:
    speak(said, MINE), speak(said, THEIRS)
    hosted.follower.require_fresh(NUMBER, 0)
    before = hosted.follower.partition(partition(MINE))
    hosted.host(MINE, THEIRS)
    assert hosted.follower.partition(partition(MINE)) is before
    hosted.follower.require_fresh(NUMBER, 0)
    assert hosted.follower.partition(partition(MINE)) is before


def test_a_partition_that_was_never_dropped_is_not_read_again(said: Topic, hosted: Hosted) -> None:
    speak(said, MINE)
    hosted.follower.require_fresh(NUMBER, 0)
    hosted.host(MINE, LATER)  # about which no fact was ever written
    hosted.follower.require_fresh(NUMBER, 0)
    assert hosted.follower.partition(partition(LATER)).leader is None
    speak(said, LATER)
    hosted.follower.require_fresh(NUMBER, 0)
    assert hosted.follower.partition(partition(LATER)).log_start == 100


def test_the_meta_fact_and_foreign_keys_are_always_kept(said: Topic, hosted: Hosted) -> None:
    hosted.host()
    said.topic.append(0, TOPIC_META_KEY, b"v"), said.topic.append(NUMBER, "foreign", b"v")
    said.topic.append(NUMBER, f"{partition(THEIRS).topic_id}/{THEIRS}/what/is/this", b"v")
    for number in (0, NUMBER):
        hosted.follower.require_fresh(number, 0)
    kept = {entry.key for _, entry in hosted.follower.store.entries()}
    assert {TOPIC_META_KEY, "foreign", f"{partition(THEIRS).topic_id}/{THEIRS}/what/is/this"} == kept
    assert len(hosted.follower.partition(partition(MINE)).degraded) == 2


def test_a_rebuilt_view_drops_the_same_partitions(said: Topic, hosted: Hosted) -> None:
    speak(said, MINE), speak(said, THEIRS)
    said.topic.truncate(NUMBER, 4)
    hosted.follower.require_fresh(NUMBER, 0)
    said.topic.truncate(NUMBER, 3)
    hosted.follower.require_fresh(NUMBER, 0)
    assert [event for event in hosted.events[1:] if isinstance(event, ViewRebuilt)]
    assert hosted.follower.partitions() == [partition(MINE)]
    assert partition(THEIRS) in hosted.follower.store.dropped(NUMBER)


def test_a_view_opened_without_a_choice_takes_all_partitions_back(said: Topic, hosted: Hosted) -> None:
    speak(said, MINE), speak(said, THEIRS)
    hosted.follower.require_fresh(NUMBER, 0)
    hosted.follower.close()
    hosted.follower = open_view(said.topic, "cluster", ManualClock(), Following(tail=False), state_dir=hosted.state)
    hosted.follower.require_fresh(NUMBER, 0)
    assert hosted.follower.partitions() == [partition(MINE), partition(THEIRS)]


class Away(MemoryTierTopic):
    """A topic that opens no reader while ``away``."""

    away = False

    def reader(self, positions: Mapping[int, Position], epochs: Mapping[int, int] | None = None) -> TierReader:
        if self.away:
            raise BrokerUnavailable("Kafka does not answer")
        return super().reader(positions, epochs)


def test_no_partition_is_fresh_until_the_topic_answers_again(tmp_path: Path) -> None:
    topic = Away(PARTITIONS)
    said, hosted = Topic(topic), Hosted(topic, tmp_path)
    speak(said, MINE), speak(said, THEIRS)
    hosted.follower.require_fresh(NUMBER, 3600)
    topic.away = True
    hosted.host(MINE, THEIRS)
    with pytest.raises(BrokerUnavailable):
        hosted.follower.require_fresh(NUMBER, 3600)
    with pytest.raises(ViewBehind):
        hosted.follower.partition(partition(THEIRS))
    topic.away = False
    hosted.follower.require_fresh(NUMBER, 3600)
    assert hosted.follower.partition(partition(THEIRS)).log_start == 100
    hosted.follower.close()


def test_with_a_tail_too_a_waiting_caller_gets_the_whole_partition(
    said: Topic, follow: Callable[..., Follower]
) -> None:
    speak(said, MINE), speak(said, THEIRS)
    users = {MINE}
    follower = follow(said.topic, Following(keep=lambda number, user: user.partition in users))
    follower.require_fresh(NUMBER, 60)
    assert follower.partitions() == [partition(MINE)]
    users.add(THEIRS)
    follower.reconsider()
    follower.wait_applied(NUMBER, Position(3), 30)
    assert follower.partition(partition(THEIRS)).log_start == 100
