"""Three brokers: leaders that move while Kafka copies, copies that overlap, and an election that loses records."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.leaders import in_sync, leader_of
from tests.kip405.kafkas_tiers import OFFLOADED, SEGMENT_BYTES, KafkasTiers, kafkas_tiers, plainly, until
from tierstate.state.routing import Isolation

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900), pytest.mark.slow]


@pytest.fixture(scope="module")
def tiers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkasTiers]:
    with kafkas_tiers(tmp_path_factory.mktemp("three"), brokers=3, replicas=3) as made:
        yield made


def on_two(tiers: KafkasTiers, name: str, brokers: tuple[int, int], **config: str) -> str:
    """Create a topic of one partition whose replicas are on these two brokers; the first one leads."""
    assignment = [[tiers.kafka.brokers[each].address.node_id for each in brokers]]
    settings = {tiers.segment_bytes: str(SEGMENT_BYTES), **OFFLOADED, **config}
    topic = NewTopic(name, 1, replica_assignment=assignment, config=settings)
    admin = AdminClient({**tiers.kafka.client_config})  # a new one: the controller may have moved
    admin.create_topics([topic])[name].result(30)
    return name


def leads(tiers: KafkasTiers, topic: str, broker: int) -> bool:
    return leader_of(tiers.kafka, topic) == broker


def copied(tiers: KafkasTiers, topic: str) -> int:
    return max((each.offsets.end for each in tiers.finished(topic)), default=-1)


def same_as_kafkas(tiers: KafkasTiers, topic: str) -> None:
    tiers.publish(topic)
    for isolation in Isolation:
        assert tiers.digests(topic, isolation) == tiers.digests(topic, isolation, "--via", "broker")


def test_leaders_that_move_leave_one_log(tiers: KafkasTiers) -> None:
    topic = on_two(tiers, "moves", (0, 1))
    for stopped in (0, 1, 0):
        plainly(tiers.kafka, topic, count=250)
        tiers.kafka.kill(stopped)
        other = tiers.kafka.brokers[1 - stopped].address.node_id
        until(partial(leads, tiers, topic, other))
        plainly(tiers.kafka, topic, count=250)
        tiers.kafka.start(stopped)
        until(lambda: in_sync(tiers.kafka, topic) == 2)
    plainly(tiers.kafka, topic, count=150)
    until(lambda: copied(tiers, topic) > 1_300)
    same_as_kafkas(tiers, topic)
    (facts,) = tiers.run("describe", topic)
    assert facts["gaps"] == []


def test_records_that_an_unclean_election_lost_are_not_read_though_their_copies_are_there(tiers: KafkasTiers) -> None:
    topic = on_two(tiers, "unclean", (0, 1), **{"unclean.leader.election.enable": "true", "min.insync.replicas": "1"})
    plainly(tiers.kafka, topic, count=250)
    until(lambda: copied(tiers, topic) > 150)
    tiers.kafka.kill(1)
    plainly(tiers.kafka, topic, count=500)  # only the leader has these
    until(lambda: copied(tiers, topic) > 600)
    lost = tiers.finished(topic)
    tiers.publish(topic)
    tiers.kafka.kill(0)
    tiers.kafka.start(1)
    survivor = tiers.kafka.brokers[1].address.node_id
    until(partial(leads, tiers, topic, survivor))
    same_as_kafkas(tiers, topic)
    plainly(tiers.kafka, topic, count=700)  # other records at the same offsets
    until(lambda: len(tiers.finished(topic)) > len(lost) + 3)
    same_as_kafkas(tiers, topic)
    overlapping = [each for each in tiers.finished(topic) if each not in lost]
    assert any(each.offsets.overlap(other.offsets) for each in overlapping for other in lost)
    tiers.kafka.start(0)
