"""Topics as Kafka describes them: identity, partitions, and the settings that tierstate obeys."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..state.epochs import LeaderEpoch
from ..state.errors import BrokerUnavailable, TierstateError, TimedOut, UnknownTopic
from ..state.ids import BrokerId, TopicId
from ..state.topics import TopicConfig
from .answers import RawConfig, RawMetadata, RawTopic
from .error_codes import error_of
from .raw import RawClient

CONFIGS_A_REQUEST = 500


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


def read_config(raw: RawClient, name: str) -> TopicConfig:
    """From any broker that answers: librdkafka waits for one that is gone (seen: all of its ten seconds, each time).

    UnknownTopic, AccessDenied (DescribeConfigs is needed), BrokerUnavailable, TimedOut.
    """
    failure: TierstateError = BrokerUnavailable("no broker is known", topic=name)
    for broker in raw.metadata().brokers:
        try:
            found = read_configs(raw, broker, [name])[name]
        except (BrokerUnavailable, TimedOut) as error:
            failure = error
            continue
        if isinstance(found, TierstateError):
            raise found
        return found
    raise failure


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
