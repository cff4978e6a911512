"""Leaders that move, die and freeze: reads follow, deletes do not, and old epochs are fenced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.servers.frozen_broker import freeze, thaw
from tierstate.broker.answers import FetchSpec
from tierstate.broker.open import Broker, open_broker
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.epochs import LeaderEpoch
from tierstate.state.errors import BrokerUnavailable, Fenced
from tierstate.state.ids import BrokerId
from tierstate.state.offsets import Offset
from tierstate.state.routing import Isolation

pytestmark = pytest.mark.kafka


@pytest.fixture
def three(kafka_three: KafkaSandbox) -> Iterator[Broker]:
    with open_broker(kafka_three.client_config) as opened:
        yield opened


@pytest.fixture
def topic(kafka_three: KafkaSandbox, topic_name: str, make_topics: Callable[[KafkaSandbox], Any]) -> str:
    """Create a topic of thirty records on three replicas, and return its name."""
    topics = make_topics(kafka_three)
    topics.append(topics.create(topic_name), 0, 30)
    return topic_name


def lead(three: Broker, topic: str) -> tuple[BrokerId, LeaderEpoch]:
    described = three.control.topic(topic).partitions[0]
    assert described.leader is not None
    assert described.leader_epoch is not None
    return described.leader, described.leader_epoch


def test_a_broker_that_does_not_lead_deletes_nothing(three: Broker, topic: str) -> None:
    leader, _ = lead(three, topic)
    for other in three.control.cluster().brokers:
        if other != leader:
            with pytest.raises(Fenced):
                three.control.delete_records_on(other, topic, 0, Offset(10))
            with pytest.raises(BrokerUnavailable):
                three.control.bounds(topic, 0, broker=other)
    assert three.control.bounds(topic, 0).local_start == 0
    assert three.control.delete_records_on(leader, topic, 0, Offset(10)) == 10


def test_reads_follow_a_killed_leader_and_its_epoch_is_fenced(
    three: Broker, topic: str, kafka_three: KafkaSandbox
) -> None:
    def read(epoch: LeaderEpoch | None) -> Any:
        return three.reads.fetch(FetchSpec(topic, 0, Offset(0), 1 << 20, Isolation.READ_COMMITTED, epoch))

    leader, epoch = lead(three, topic)
    before = read(epoch)
    kafka_three.kill(leader - 1)
    try:
        while (
            after := read(None)
        ).bounds.high_watermark < before.bounds.high_watermark:  # a new leader learns it from followers
            assert before.batches.startswith(after.batches)
        assert after.batches == before.batches
        with pytest.raises(Fenced):
            read(epoch)
        with pytest.raises(Fenced):
            three.control.bounds(topic, 0, epoch=epoch)
        with pytest.raises(BrokerUnavailable):
            three.control.delete_records_on(leader, topic, 0, Offset(10))
        assert three.control.bounds(topic, 0).local_start == 0
    finally:
        kafka_three.start(leader - 1)


def test_a_frozen_broker_is_not_waited_for_and_not_sent_a_delete(
    three: Broker, topic: str, kafka_three: KafkaSandbox
) -> None:
    leader, _ = lead(three, topic)
    freeze(kafka_three, leader - 1)
    try:
        with pytest.raises(BrokerUnavailable, match=r"was not sent"):
            three.control.delete_records_on(leader, topic, 0, Offset(10), timeout=1.0)
    finally:
        thaw(kafka_three, leader - 1)
    assert three.reads.bounds(topic, 0).local_start == 0
