"""Create, check and open the tier-state topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from ..runtime.clock import SystemClock, repeated
from ..schemas.codec import MAX_FACT_BYTES, decode_fact, encode_fact
from ..state.errors import AccessDenied, BrokerUnavailable, InvalidRequest, TierStateLost, TimedOut, UnknownTopic
from ..state.facts import TopicMeta
from ..state.keys import TOPIC_META_KEY, key_of
from ..state.offsets import Position, TimestampMs
from .client_config import admin_config, kafka_error
from .error_codes import check
from .kafka_access import access_of
from .raw import RawClient
from .tier_reader import lost_heads
from .tier_topic import KafkaTierTopic
from .topics import TopicDescription, describe_topic

A = TypeVar("A")
DAY_MS = 24 * 3600 * 1000
KNOWN_S, AGAIN_S = 15.0, 0.2
ANSWER_S = 10.0
LARGEST_BATCH = 1_048_588
"""The largest record batch in the created topic, in bytes: Kafka's default, even if the brokers have another one."""
LARGEST_FACT = 2 * MAX_FACT_BYTES
"""The batch of one fact, including its key, never has more bytes than this."""
_WAYS_OUT = {
    KafkaError.INVALID_REPLICATION_FACTOR: ": set tier_state.replication_factor to at most the number of brokers",
    KafkaError.INVALID_PARTITIONS: ": set tier_state.partitions",
    KafkaError.INVALID_CONFIG: "",
}
BEFORE_RECOVER = "tierstate init makes it, and if it was lost: " + TierStateLost.WAY_OUT


@dataclass(frozen=True, slots=True)
class TierTopicSpec:
    """The topic that the settings describe."""

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
            "max.message.bytes": str(LARGEST_BATCH),
        }


def create_tier_topic(kafka: Mapping[str, str], spec: TierTopicSpec, now: TimestampMs) -> bool:
    """Create the topic and its ``meta/topic`` fact if they are missing. Return whether anything was created.

    An existing topic that is not safe is not changed, because the fact would hide its problems. Raises InvalidRequest
    for such a topic, or if Kafka refuses the spec's numbers. Also raises TierStateLost, AccessDenied,
    BrokerUnavailable.
    """
    kafka = access_of(kafka)
    created = _create(AdminClient(admin_config(kafka)), spec)
    if not created:
        existing = look_at_tier_topic(kafka, spec)
        (existing if existing.wrong else replace(existing, nameless=False)).require_safe()
    with closing(KafkaTierTopic(kafka, spec.name, "", 0)) as topic:
        partitions = _once_known(lambda: len(describe_topic(topic.raw, spec.name).partitions))
        if _once_known(lambda: read_meta(topic)) is None:
            meta = TopicMeta(partitions, topic.raw.metadata().cluster_id, now)
            topic.append(0, key_of(meta), encode_fact(meta))
            created = True
    return created


def _once_known(ask: Callable[[], A]) -> A:
    """Return ``ask()``. Brokers learn of a created topic a moment later, and each request may go to another broker."""
    return repeated(SystemClock(), ask, (UnknownTopic, BrokerUnavailable), KNOWN_S, AGAIN_S)


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
        if code in _WAYS_OUT:
            message = f"Kafka refuses this tier-state topic{_WAYS_OUT[code]}"
            raise InvalidRequest(message, topic=spec.name, reason=kafka_error(error)) from error
        raise BrokerUnavailable("cannot create the tier-state topic", reason=kafka_error(error)) from error
    return True


@dataclass(frozen=True, slots=True)
class Found:
    """The state of the topic. ``lost`` has one sentence for each partition whose first facts were deleted, ``wrong``
    one for each wrong setting. ``nameless``: the ``meta/topic`` fact does not exist. ``meta``: this fact, if read.
    """

    name: str
    there: bool = True
    lost: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    nameless: bool = False
    unmapped: int = 0
    """The number of partitions that were added after the topic's creation. They are empty: no key is mapped to them."""
    meta: TopicMeta | None = None
    topic_id: str = ""

    @property
    def problems(self) -> list[str]:
        if not self.there:
            return [f"topic {self.name} does not exist: {BEFORE_RECOVER}"]
        return [*self.lost, *self._without_meta(), *self.wrong]

    def _without_meta(self) -> list[str]:
        if self.nameless and any(each.startswith("cleanup.policy") for each in self.wrong):
            made = f"{self.name} was not made by tierstate init but by some client (auto.create.topics.enable)"
            return [f"{made}: delete it with Kafka's own tools; {BEFORE_RECOVER}"]
        return [f"partition 0 has no {TOPIC_META_KEY} fact; write it with: tierstate init"] if self.nameless else []

    def require_safe(self) -> None:
        """Raises UnknownTopic, TierStateLost or InvalidRequest, which names all problems, if there are any."""
        if not self.there:
            raise UnknownTopic(self.problems[0])
        if self.lost:
            raise TierStateLost("; ".join(self.problems))
        if self.problems:
            problems = "; ".join(self.problems)
            raise InvalidRequest("the tier-state topic is not safe to use", topic=self.name, problems=problems)


def look_at_tier_topic(kafka: Mapping[str, str], spec: TierTopicSpec) -> Found:
    """Return the state of the topic. Raises AccessDenied, BrokerUnavailable."""
    with closing(KafkaTierTopic(kafka, spec.name, "", 0)) as topic:
        if (described := _described(topic.raw, spec.name)) is None:
            return Found(spec.name, there=False)
        configs = topic.raw.on_any(lambda broker: topic.raw.topic_configs(broker, [spec.name], [*spec.config]))
        code, actual = configs[spec.name]
        check(code, topic=spec.name, needs="DESCRIBE_CONFIGS")
        partitions = {each.partition: each for each in described.partitions}
        starts = topic.starts(partitions)
        headless = starts.get(0, 0) > 0
        meta = None if headless else read_meta(topic)
    problems = [problem for name, value in spec.config.items() if (problem := _judge(name, value, actual.get(name)))]
    replicas = min((len(each.replicas) for each in partitions.values()), default=0)
    if replicas < spec.replication_factor:
        target = f"{spec.replication_factor} is wanted (tier_state.replication_factor)"
        problems.append(f"replication factor is {replicas}, at least {target}")
    if meta is not None and len(partitions) < meta.partitions:
        problems.append(f"{meta.partitions} partitions map its keys, but the topic has only {len(partitions)}")
    mapped = len(partitions) if meta is None else meta.partitions
    lost = lost_heads(spec.name, {number: start for number, start in starts.items() if number < mapped})
    unmapped = max(0, len(partitions) - mapped)
    nameless = not (meta or headless)
    return Found(
        spec.name, True, tuple(lost), tuple(problems), nameless, unmapped, meta, topic_id=str(described.topic_id)
    )


def has_facts(kafka: Mapping[str, str], name: str) -> bool:
    """Return whether the topic has, or had, another fact than ``meta/topic``. Raises as `look_at_tier_topic`."""
    with closing(KafkaTierTopic(kafka, name, "", 0)) as topic:
        described = _described(topic.raw, name)
        partitions = () if described is None else described.partitions
        return sum(topic.end(each.partition) for each in partitions) > 1  # `ends` leaves out those that fail


def _described(raw: RawClient, name: str) -> TopicDescription | None:
    """Return the description of the topic; None if it does not exist. Raises AccessDenied, BrokerUnavailable."""
    try:
        return repeated(
            SystemClock(), partial(describe_topic, raw, name), (BrokerUnavailable, TimedOut), ANSWER_S, AGAIN_S
        )
    except UnknownTopic:
        return None
    except (BrokerUnavailable, TimedOut) as error:
        raise BrokerUnavailable("Kafka does not answer", reason=error) from error


def _judge(name: str, target: str, actual: str | None) -> str | None:
    at_least = name in ("delete.retention.ms", "min.compaction.lag.ms", "min.insync.replicas")
    if actual is not None and name == "max.compaction.lag.ms":
        return None if int(actual) <= int(target) else f"{name} is {actual}, at most {target} is wanted"
    if actual is not None and name == "max.message.bytes":
        return None if int(actual) >= LARGEST_FACT else f"{name} is {actual}, at least {LARGEST_FACT} is wanted"
    fits = actual is not None and (int(actual) >= int(target) if at_least else actual == target)
    return None if fits else f"{name} is {actual}, {'at least ' if at_least else ''}{target} is wanted"


def open_tier_topic(kafka: Mapping[str, str], spec: TierTopicSpec) -> KafkaTierTopic:
    """Return the topic, ready to use. Raises the errors of `look_at_tier_topic` and `Found.require_safe`."""
    state = look_at_tier_topic(kafka, spec)
    state.require_safe()
    if state.meta is None:
        raise InvalidRequest("the tier-state topic lost its meta/topic fact", topic=spec.name)
    place = spec.name, state.topic_id, state.meta.partitions
    return KafkaTierTopic(kafka, *place, check=lambda: look_at_tier_topic(kafka, spec).problems)


def read_meta(topic: KafkaTierTopic) -> TopicMeta | None:
    """Return the ``meta/topic`` fact, or None. It is written first, so it is near the beginning of partition 0."""
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
