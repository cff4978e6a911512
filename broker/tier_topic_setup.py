"""Create, check and open the tier-state topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from ..runtime.clock import SystemClock
from ..runtime.id_source import RandomIds
from ..runtime.retry import Retry
from ..schemas.codec import decode_fact, encode_fact
from ..state.errors import AccessDenied, BrokerUnavailable, InvalidRequest, UnknownTopic
from ..state.facts import TopicMeta
from ..state.keys import TOPIC_META_KEY, key_of
from ..state.offsets import Position, TimestampMs
from .client_config import admin_config, kafka_error
from .tier_topic import KafkaTierTopic, describe_topic_id

DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class TierTopicSpec:
    """What the settings ask for."""

    name: str = "_tier-state"
    partitions: int = 50
    replication_factor: int = 3

    @property
    def config(self) -> dict[str, str]:
        """The topic's configuration; each value is a promise of `docs/formats.md`."""
        return {
            "cleanup.policy": "compact",
            "min.insync.replicas": str(min(2, self.replication_factor)),
            "unclean.leader.election.enable": "false",
            "delete.retention.ms": str(30 * DAY_MS),
            "min.compaction.lag.ms": str(DAY_MS),
            "max.compaction.lag.ms": str(7 * DAY_MS),  # decision 0013: replicas are cleaned apart from each other
            "message.timestamp.type": "LogAppendTime",
            "compression.type": "producer",
        }


def create_tier_topic(kafka: Mapping[str, str], spec: TierTopicSpec, now: TimestampMs) -> bool:
    """Create the topic and its ``meta/topic`` fact where they are missing; True when something was created.

    Raises InvalidRequest when Kafka refuses the numbers, AccessDenied, BrokerUnavailable.
    """
    admin: Any = AdminClient(admin_config(kafka))
    created = _create(admin, spec)
    # a created topic is known to every broker a moment later, not at once; and each question may go to another
    patient, late = Retry(SystemClock(), RandomIds(), 15.0), (UnknownTopic, BrokerUnavailable)
    topic = KafkaTierTopic(kafka, spec.name, patient.call(lambda: describe_topic_id(admin, spec.name), late), 0)
    try:
        if patient.call(lambda: read_meta(topic), late) is None:
            cluster_id = admin.list_topics(timeout=10).cluster_id
            partitions = partition_count(admin, spec.name)
            meta = TopicMeta(partitions, cluster_id, now)
            topic.append(0, key_of(meta), encode_fact(meta))
            created = True
    finally:
        topic.close()
    return created


def _create(admin: Any, spec: TierTopicSpec) -> bool:
    new = NewTopic(spec.name, spec.partitions, spec.replication_factor, config=spec.config)
    try:
        admin.create_topics([new], operation_timeout=30)[spec.name].result(timeout=40)
    except KafkaException as error:
        code = error.args[0].code()
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
            raise AccessDenied("may not create the tier-state topic", topic=spec.name) from error
        if code in (KafkaError.INVALID_REPLICATION_FACTOR, KafkaError.INVALID_PARTITIONS, KafkaError.INVALID_CONFIG):
            raise InvalidRequest(
                "Kafka refuses this tier-state topic", topic=spec.name, reason=kafka_error(error)
            ) from error
        raise BrokerUnavailable("cannot create the tier-state topic", reason=kafka_error(error)) from error
    return True


def check_tier_topic(kafka: Mapping[str, str], spec: TierTopicSpec) -> list[str]:
    """What is wrong with the topic as it stands, one sentence each; empty when it is safe to use."""
    admin: Any = AdminClient(admin_config(kafka))
    try:
        metadata = admin.list_topics(spec.name, timeout=10).topics[spec.name]
    except KafkaException as error:
        raise BrokerUnavailable("Kafka does not answer", reason=kafka_error(error)) from error
    if metadata.error is not None:
        return [f"topic {spec.name} does not exist; create it with: tierstate init"]
    resource = ConfigResource(ResourceType.TOPIC, spec.name)
    try:
        entries = admin.describe_configs([resource], request_timeout=10)[resource].result(timeout=15)
    except KafkaException as error:
        raise BrokerUnavailable("topic configuration cannot be read", reason=kafka_error(error)) from error
    actual = {name: entry.value for name, entry in entries.items()}
    problems = [problem for name, wanted in spec.config.items() if (problem := _judge(name, wanted, actual.get(name)))]
    replicas = min((len(p.replicas) for p in metadata.partitions.values()), default=0)
    if replicas < spec.replication_factor:
        problems.append(f"replication factor is {replicas}, at least {spec.replication_factor} is wanted")
    return problems + _meta_problems(kafka, spec, len(metadata.partitions))


def _judge(name: str, wanted: str, actual: str | None) -> str | None:
    at_least = name in ("delete.retention.ms", "min.compaction.lag.ms", "min.insync.replicas")
    if actual is not None and name == "max.compaction.lag.ms":
        return None if int(actual) <= int(wanted) else f"{name} is {actual}, at most {wanted} is wanted"
    fits = actual is not None and (int(actual) >= int(wanted) if at_least else actual == wanted)
    return None if fits else f"{name} is {actual}, {'at least ' if at_least else ''}{wanted} is wanted"


def _meta_problems(kafka: Mapping[str, str], spec: TierTopicSpec, real: int) -> list[str]:
    meta = _meta_of(kafka, spec.name)
    if meta is None:
        return [f"partition 0 has no {TOPIC_META_KEY} fact; write it with: tierstate init"]
    if real < meta.partitions:
        return [f"{meta.partitions} partitions map its keys, but the topic has only {real}"]
    return []


def _meta_of(kafka: Mapping[str, str], name: str) -> TopicMeta | None:
    """`read_meta` through a client that is closed again."""
    topic = KafkaTierTopic(kafka, name, "", 0)
    try:
        return read_meta(topic)
    finally:
        topic.close()


def open_tier_topic(kafka: Mapping[str, str], spec: TierTopicSpec) -> KafkaTierTopic:
    """The topic, ready to use. Raises InvalidRequest with every problem `check_tier_topic` finds, UnknownTopic."""
    problems = check_tier_topic(kafka, spec)
    if problems and problems[0].startswith("topic "):
        raise UnknownTopic(problems[0])
    if problems:
        raise InvalidRequest("the tier-state topic is not safe to use", topic=spec.name, problems="; ".join(problems))
    topic_id = describe_topic_id(AdminClient(admin_config(kafka)), spec.name)
    meta = _meta_of(kafka, spec.name)
    if meta is None:
        raise InvalidRequest("the tier-state topic lost its meta/topic fact", topic=spec.name)
    return KafkaTierTopic(kafka, spec.name, topic_id, meta.partitions, partial(check_tier_topic, kafka, spec))


def partition_count(admin: Any, name: str) -> int:
    """How many partitions the topic really has."""
    return len(admin.list_topics(name, timeout=10).topics[name].partitions)


def read_meta(topic: KafkaTierTopic) -> TopicMeta | None:
    """The ``meta/topic`` fact: written first, so it is the first live record of partition 0, or nearly."""
    end = topic.end(0)
    reader = topic.reader({0: Position(0)})
    try:
        at = Position(0)
        while at < end:
            for batch in reader.poll(1.0):
                at = batch.following
                for entry in batch.entries:
                    if entry.key == TOPIC_META_KEY and entry.value is not None:
                        fact = decode_fact(entry.key, entry.value)
                        return fact if isinstance(fact, TopicMeta) else None
    finally:
        reader.close()
    return None
