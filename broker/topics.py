"""The descriptions of topics in Kafka: identity, partitions, and the settings that tierstate obeys."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..state.errors import BrokerUnavailable, TierstateError, UnknownTopic
from ..state.ids import BrokerId, TopicId
from ..state.retention import TopicConfig
from .answers import PartitionDescription as PartitionDescription
from .answers import RawMetadata, RawTopic
from .error_codes import error_of
from .raw import RawClient

CONFIGS_A_REQUEST = 500


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
    config = raw.on_any(lambda broker: read_configs(raw, broker, [name])[name])
    if isinstance(config, TierstateError):
        raise config
    return config


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
            if topic in answers:
                code, entries = answers[topic]
                configs[topic] = error_of(code, topic=topic) or TopicConfig.of(entries)
            else:
                left_out = BrokerUnavailable("the broker's answer leaves the topic out", topic=topic, broker=broker)
                configs[topic] = left_out
    return configs


def _description(topic: RawTopic) -> TopicDescription:
    if topic.topic_id is None:
        raise BrokerUnavailable("the broker gives no topic id: Kafka 2.8 or newer is needed", topic=topic.name)
    return TopicDescription(topic.name, topic.topic_id, topic.internal, tuple(topic.partitions.values()))
