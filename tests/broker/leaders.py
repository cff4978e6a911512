"""The leader of a partition, asked by raw requests: librdkafka's AdminClient waits for a controller that was killed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, suppress

from kafka.protocol.admin import AlterPartitionReassignmentsRequest, ElectLeadersRequest

from tierstate.broker.answers import PartitionDescription
from tierstate.broker.raw import RawClient
from tierstate.broker.topics import describe_topic
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import BrokerUnavailable, TimedOut
from tierstate.state.ids import BrokerId


def leader_of(kafka: KafkaSandbox, topic: str, partition: int = 0) -> int | None:
    """Return the leader's id; None during an election, or while the brokers do not answer."""
    state = _state(kafka, topic, partition)
    return None if state is None else state.leader


def in_sync(kafka: KafkaSandbox, topic: str, partition: int = 0) -> int:
    """Return how many replicas are in sync, as far as the first broker that answers knows."""
    state = _state(kafka, topic, partition)
    return 0 if state is None else len(state.in_sync)


def topic_id_of(kafka: Mapping[str, str], topic: str) -> str:
    with closing(RawClient(kafka, SystemClock())) as raw:
        return str(describe_topic(raw, topic).topic_id)


def move_leader(raw: RawClient, topic: str, partition: int, by: BrokerId, to: BrokerId) -> None:
    """Make ``to`` the preferred leader and elect it, by requests to ``by``. May do nothing: look at the metadata."""
    moved = AlterPartitionReassignmentsRequest.ReassignableTopic
    replicas = [to, *(each for each in sorted(raw.metadata().brokers) if each != to)]
    part = moved.ReassignablePartition(partition_index=partition, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(topics=[moved(name=topic, partitions=[part])], timeout_ms=5000)
    raw.ask(by, request)
    elected = ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[partition])
    raw.ask(by, ElectLeadersRequest(election_type=0, topic_partitions=[elected], timeout_ms=5000))


def _state(kafka: KafkaSandbox, topic: str, partition: int) -> PartitionDescription | None:
    with closing(RawClient(kafka.client_config, SystemClock())) as raw, suppress(BrokerUnavailable, TimedOut):
        return raw.metadata([topic]).topics[topic].partitions[partition]
    return None
