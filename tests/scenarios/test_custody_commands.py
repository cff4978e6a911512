"""``leases``, ``undelete``, ``release``: commands about leases, missing topics and integrity holds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.scenarios.house import House
from tierstate.broker.open import open_broker
from tierstate.broker.tier_topic import KafkaTierTopic
from tierstate.broker.tier_topic_setup import TierTopicSpec, open_tier_topic
from tierstate.runtime.id_source import RandomIds
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.schemas.codec import encode_fact
from tierstate.state.epochs import TERMINAL_EPOCH, LeaderEpoch, Lineage
from tierstate.state.facts import Fact, IntegrityHold, LeaderElected, PartitionDeleted, PartitionMissing, ReaderLease
from tierstate.state.ids import BrokerId, FactId, TopicId, TopicIdPartition
from tierstate.state.keys import key_of, tier_partition_of
from tierstate.state.offsets import Offset, OffsetRange, Position, TimestampMs
from tierstate.state.segment import Term

pytestmark = pytest.mark.kafka

ME = BrokerId(1)
IDS = RandomIds()


def new_id() -> FactId:
    return FactId.of(IDS.uuid())


@dataclass
class Told:
    """A topic of two partitions, and a writer of facts about it."""

    house: House
    topic: str
    topic_id: str
    tier_topic: KafkaTierTopic

    def partition(self, number: int) -> TopicIdPartition:
        return TopicIdPartition(TopicId(self.topic_id), number)

    @property
    def now(self) -> TimestampMs:
        return TimestampMs(int(time.time() * 1000))

    def say(self, partition: TopicIdPartition, fact: Fact) -> Position:
        return self.tier_topic.append(tier_partition_of(partition, 2), key_of(fact), encode_fact(fact))

    def keys(self) -> list[str]:
        return [each["key"] for each in self.house.lines("facts") if self.topic_id in each["key"]]


@pytest.fixture
def told(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory, topic_name: str) -> Iterator[Told]:
    name = topic_name[-40:].strip("-")
    house = House(kafka, tmp_path_factory.mktemp("custody") / "house", name)
    house.run("init")
    topic = house.create("t", partitions=2)
    with open_broker(kafka.client_config) as broker:
        topic_id = broker.control.topic(topic).topic_id
    tier_topic = open_tier_topic(kafka.client_config, TierTopicSpec(house.tier_topic, 2, 1))
    yield Told(house, topic, topic_id, tier_topic)
    tier_topic.close()
    house.close()


def lease(told: Told, number: int, holder: str) -> ReaderLease:
    partition = told.partition(number)
    until = TimestampMs(told.now + 3_600_000)
    fact = ReaderLease(partition, new_id(), OffsetRange(Offset(0), Offset(99)), holder, until)
    told.say(partition, fact)
    return fact


def test_leases_are_listed_and_one_is_ended(told: Told) -> None:
    one, other = lease(told, 0, "spark job 7"), lease(told, 1, "gateway a")
    listed = told.house.json("leases", told.topic)
    assert [(each["partition"], each["holder"], each["id"]) for each in listed] == [
        (0, "spark job 7", one.id),
        (1, "gateway a", other.id),
    ]
    assert 3_400 < listed[0]["expires_in_s"] <= 3_600
    assert listed[0]["offsets"] == {"start": 0, "end": 99}
    printed = told.house.run("leases", f"{told.topic}:1").stdout
    assert "gateway a" in printed
    assert "spark" not in printed
    assert "no such lease" in told.house.run("leases", told.topic, "--end", str(new_id()), code=2).stderr
    (would,) = told.house.json("leases", "--end", str(one.id))
    assert (would["id"], would["executed"]) == (one.id, False)
    (ended,) = told.house.json("leases", "--end", str(one.id), "--execute")
    assert (ended["id"], ended["executed"]) == (one.id, True)
    assert [each["id"] for each in told.house.json("leases", f"{told.topic_id}")] == [other.id]


def test_undelete_shows_what_it_would_erase_and_erases_it_on_demand(told: Told) -> None:
    partition = told.partition(0)
    elected = LeaderElected(
        partition, told.topic, LeaderEpoch(0), new_id(), ME, "", Lineage.of((0, 0)), Offset(0), told.now
    )
    missing = PartitionMissing(partition, new_id(), "cluster", ME, told.now)
    told.say(partition, elected)
    assert "no fact says" in told.house.run("undelete", told.topic_id, code=2).stderr
    told.say(partition, missing)
    before = told.keys()
    shown = told.house.run("undelete", f"{told.topic_id}:0")
    assert told.topic in shown.stdout
    assert "custodian.grace" in shown.stderr
    assert "--execute" in shown.stderr
    assert told.keys() == before
    (plan,) = told.house.json("undelete", told.topic_id, "--execute")
    assert (plan["erases"], plan["executed"]) == ([key_of(missing)], True)
    assert told.keys() == [key_of(elected)]
    assert "not a TopicId" in told.house.run("undelete", told.topic, code=2).stderr


def test_undelete_says_when_it_is_too_late(told: Told) -> None:
    partition = told.partition(1)
    elected = LeaderElected(partition, told.topic, TERMINAL_EPOCH, new_id(), ME, "", Lineage(), Offset(0), told.now)
    told.say(partition, PartitionMissing(partition, new_id(), "cluster", ME, told.now))
    position = told.say(partition, elected)
    told.say(partition, PartitionDeleted(partition, Term(TERMINAL_EPOCH, position, elected.id), told.now))
    before = told.keys()
    assert "too late" in told.house.run("undelete", told.topic_id, "--execute", code=5).stderr
    assert told.keys() == before


def test_a_hold_is_shown_with_both_facts_and_released_by_its_id(told: Told) -> None:
    partition = told.partition(0)
    hold = IntegrityHold(partition, new_id(), ME, "two values", '{"a":1}', '{"a":2}', told.now)
    other = IntegrityHold(partition, new_id(), ME, "another", "x", "y", told.now)
    told.say(partition, hold)
    told.say(partition, other)
    where = f"{told.topic}:0"
    shown = told.house.run("release", where, str(hold.id)).stdout
    assert all(text in shown for text in ("two values", '{"a":1}', '{"a":2}'))
    assert len(told.house.json("release", where)) == 2
    assert "name the hold" in told.house.run("release", where, "--execute", code=2).stderr
    assert "no such hold" in told.house.run("release", where, str(new_id()), code=2).stderr
    assert len(told.keys()) == 2
    told.house.run("release", f"{told.topic_id}:0", str(hold.id), "--execute")
    assert told.keys() == [key_of(other)]
