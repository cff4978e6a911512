"""Topics as Kafka describes them: identity, partitions, and the settings that tierstate obeys."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from ..state.epochs import LeaderEpoch
from ..state.errors import BrokerUnavailable, TierstateError, UnknownTopic
from ..state.ids import BrokerId, TopicId
from .answers import RawConfig, RawMetadata, RawTopic
from .error_codes import error_of, error_of_exception
from .raw import RawClient

CONFIGS_A_REQUEST = 500
_PREFIXES = {"timestamp_type": "message."}
LIKE_TOTAL = -2
"""``local.retention.*`` = -2: as the topic's own ``retention.*``."""


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A hint: may be stale on any broker. ``leader`` is None during an election."""

    partition: int
    leader: BrokerId | None
    leader_epoch: LeaderEpoch | None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """``internal``: one of Kafka's own topics."""

    name: str
    topic_id: TopicId
    internal: bool
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Effective settings: the topic's own, else the broker's default. Milliseconds and bytes, -1 is no limit."""

    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    local_retention_ms: int = LIKE_TOTAL
    local_retention_bytes: int = LIKE_TOTAL
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    remote_storage_enable: bool = False
    timestamp_type: str = "CreateTime"
    unclean_leader_election_enable: bool = False

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Kafka's names of all these."""
        return tuple(f"{_PREFIXES.get(each.name, '')}{each.name.replace('_', '.')}" for each in fields(cls))

    @classmethod
    def of(cls, entries: Mapping[str, str]) -> TopicConfig:
        """From Kafka's names; a broker older than a setting does not name it, which means its default."""
        default = cls()

        def number(name: str, otherwise: int) -> int:
            return int(entries.get(name, otherwise))

        policy = entries.get("cleanup.policy", "delete")
        return cls(
            retention_ms=number("retention.ms", default.retention_ms),
            retention_bytes=number("retention.bytes", default.retention_bytes),
            local_retention_ms=number("local.retention.ms", LIKE_TOTAL),
            local_retention_bytes=number("local.retention.bytes", LIKE_TOTAL),
            cleanup_policy=frozenset(filter(None, (one.strip() for one in policy.split(",")))),
            remote_storage_enable=entries.get("remote.storage.enable", "false") == "true",
            timestamp_type=entries.get("message.timestamp.type", default.timestamp_type),
            unclean_leader_election_enable=entries.get("unclean.leader.election.enable", "false") == "true",
        )


def describe_topic(raw: RawClient, name: str) -> TopicDescription:
    """UnknownTopic, AccessDenied, BrokerUnavailable."""
    found = raw.metadata([name]).topics.get(name)
    if found is None:
        raise UnknownTopic("no such topic", topic=name)
    if found.error is not None:
        raise found.error
    return _description(found)


def describe_topics(found: RawMetadata) -> tuple[TopicDescription, ...]:
    """Every topic that was answered, by name."""
    return tuple(_description(topic) for _, topic in sorted(found.topics.items()) if topic.error is None)


def read_config(admin: AdminClient, name: str, timeout: float) -> TopicConfig:
    """UnknownTopic, AccessDenied (DescribeConfigs is needed), BrokerUnavailable, TimedOut."""
    resource = ConfigResource(ResourceType.TOPIC, name)
    try:
        entries: dict[str, Any] = admin.describe_configs([resource], request_timeout=timeout)[resource].result()
    except KafkaException as error:
        raise error_of_exception(error, topic=name) from error
    return TopicConfig.of({key: entry.value for key, entry in entries.items() if entry.value is not None})


def read_configs(raw: RawClient, broker: BrokerId, topics: Collection[str]) -> dict[str, TopicConfig | TierstateError]:
    """`read_config` of many, from one broker and in few requests: what each would answer or raise.

    Raises what concerns all of them: BrokerUnavailable, TimedOut.
    """
    wanted = sorted(topics)
    found: dict[str, TopicConfig | TierstateError] = {}
    for at in range(0, len(wanted), CONFIGS_A_REQUEST):
        some = wanted[at : at + CONFIGS_A_REQUEST]
        answers = raw.topic_configs(broker, some, TopicConfig.names())
        for topic in some:
            said = answers.get(topic)
            left_out = BrokerUnavailable("the broker's answer leaves the topic out", topic=topic, broker=broker)
            found[topic] = left_out if said is None else _config(topic, said)
    return found


def _config(topic: str, said: RawConfig) -> TopicConfig | TierstateError:
    entries = {name: value for name, value in said.entries.items() if value is not None}
    return error_of(said.code, topic=topic) or TopicConfig.of(entries)


def _description(topic: RawTopic) -> TopicDescription:
    if topic.topic_id is None:
        raise BrokerUnavailable("the broker gives no topic id: Kafka 2.8 or newer is needed", topic=topic.name)
    partitions = tuple(
        PartitionDescription(number, said.leader, said.leader_epoch)
        for number, said in sorted(topic.partitions.items())
    )
    return TopicDescription(topic.name, topic.topic_id, topic.internal, partitions)
