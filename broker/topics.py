"""The descriptions of topics in Kafka: identity, partitions, and the settings that tierstate obeys."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..state.epochs import LeaderEpoch
from ..state.errors import BrokerUnavailable, TierstateError, TimedOut, UnknownTopic
from ..state.ids import BrokerId, TopicId
from ..state.retention import TopicConfig
from .answers import RawConfig, RawMetadata, RawTopic
from .error_codes import error_of
from .raw import RawClient

CONFIGS_A_REQUEST = 500


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition in the metadata, which may be stale on any broker. ``leader`` is None during an election."""

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


def describe_topic(raw: RawClient, name: str) -> TopicDescription:
    """Return the description of a topic. Raises UnknownTopic, AccessDenied, BrokerUnavailable."""
    answer = raw.metadata([name]).topics.get(name)
    if answer is None:
        raise UnknownTopic("no such topic", topic=name)
    if answer.error is not None:
        raise answer.error
    return _description(answer)


def describe_topics(metadata: RawMetadata) -> tuple[TopicDescription, ...]:
    """Return the topics of a metadata answer, sorted by name, without topics that have an error."""
    return tuple(_description(topic) for _, topic in sorted(metadata.topics.items()) if topic.error is None)


def read_config(raw: RawClient, name: str) -> TopicConfig:
    """Return the settings of a topic, from the first broker that answers. (librdkafka waits 10 s for a dead one, seen.)

    Raises UnknownTopic, AccessDenied (DescribeConfigs is needed), BrokerUnavailable, TimedOut.
    """
    failure: TierstateError = BrokerUnavailable("no broker is known", topic=name)
    for broker in raw.metadata().brokers:
        try:
            config = read_configs(raw, broker, [name])[name]
        except (BrokerUnavailable, TimedOut) as error:
            failure = error
            continue
        if isinstance(config, TierstateError):
            raise config
        return config
    raise failure


def read_configs(raw: RawClient, broker: BrokerId, topics: Collection[str]) -> dict[str, TopicConfig | TierstateError]:
    """Return the settings, or the error of `read_config`, for each topic, by few requests to one broker.

    Raises BrokerUnavailable and TimedOut, which concern all topics.
    """
    names = sorted(topics)
    configs: dict[str, TopicConfig | TierstateError] = {}
    for at in range(0, len(names), CONFIGS_A_REQUEST):
        some = names[at : at + CONFIGS_A_REQUEST]
        answers = raw.topic_configs(broker, some, TopicConfig.names())
        for topic in some:
            answer = answers.get(topic)
            left_out = BrokerUnavailable("the broker's answer leaves the topic out", topic=topic, broker=broker)
            configs[topic] = left_out if answer is None else _config(topic, answer)
    return configs


def _config(topic: str, answer: RawConfig) -> TopicConfig | TierstateError:
    entries = {name: value for name, value in answer.entries.items() if value is not None}
    return error_of(answer.code, topic=topic) or TopicConfig.of(entries)


def _description(topic: RawTopic) -> TopicDescription:
    if topic.topic_id is None:
        raise BrokerUnavailable("the broker gives no topic id: Kafka 2.8 or newer is needed", topic=topic.name)
    partitions = tuple(
        PartitionDescription(number, part.leader, part.leader_epoch)
        for number, part in sorted(topic.partitions.items())
    )
    return TopicDescription(topic.name, topic.topic_id, topic.internal, partitions)
