"""The topic that is restored into: created as the old one was, or an existing topic that can take the old records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..app.operating.cluster_backup import TopicBackup
from ..broker.administration import NewTopicSpec, create_topic
from ..broker.error_codes import check
from ..broker.open import Broker
from ..broker.topics import TopicDescription, describe_topic
from ..runtime.clock import Clock
from ..runtime.units import show_duration
from ..state.errors import BrokerUnavailable, InvalidRequest, TimedOut, UnknownTopic
from ..state.offsets import TimestampMs

TIME_TYPE, BEFORE, AFTER = "message.timestamp.type", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
RETENTION, MIN_ISR, SEGMENT = "retention.ms", "min.insync.replicas", "segment.bytes"
LEAST_SEGMENT = 1 << 20
"""The least that Kafka 4 takes for ``segment.bytes`` (KIP-1030)."""
_GONE = ("message.format.version", "message.timestamp.difference.max.ms", "message.downconversion.enable")
"""Settings that Kafka 4 no longer has (KIP-724). The second would also refuse old records."""
_ASKED = (TIME_TYPE, BEFORE, RETENTION)
_NOT_KEPT = ("remote.storage.enable", "remote.log.", "internal.", "confluent.")
"""Beginnings of settings that need what another cluster may not have."""
_REPLICAS_OF_BROKERS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
KNOWN_S, AGAIN_S = 30.0, 0.2
NO_REPLICATION = -1
"""Kafka's number for the cluster's own replication factor."""


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """``create``: None if the topic exists. ``notes``: what a person must know about the topic's settings."""

    topic: str
    create: NewTopicSpec | None
    notes: tuple[str, ...]


def new_topic(
    name: str, partitions: int, brokers: int, backup: TopicBackup | None, settings: Mapping[str, str]
) -> TargetPlan:
    """Return the topic to create. ``settings``: a person's, which replace those of the backup. Pure."""
    notes = []
    if backup is None:
        notes.append(f"no backup has its settings: the cluster's defaults, and {RETENTION}=-1, so that nothing expires")
        config = {RETENTION: "-1"}
        replicas = NO_REPLICATION
    else:
        dropped = sorted(each for each in backup.config if each.startswith(_NOT_KEPT + _REPLICAS_OF_BROKERS + _GONE))
        config = {key: value for key, value in backup.config.items() if key not in dropped}
        replicas = min(backup.replication_factor, brokers)
        if dropped:
            notes.append(f"settings that are not taken over: {', '.join(dropped)}")
        if replicas < backup.replication_factor:
            notes.append(f"replication factor {replicas}, not {backup.replication_factor}: there are {brokers} brokers")
    if config.get(TIME_TYPE) == "LogAppendTime":
        config[TIME_TYPE] = "CreateTime"
        notes.append(f"{TIME_TYPE}=CreateTime, not LogAppendTime: otherwise the stored times would be lost")
    if int(config.get(SEGMENT, LEAST_SEGMENT)) < LEAST_SEGMENT:
        notes.append(f"{SEGMENT}={LEAST_SEGMENT}, not {config[SEGMENT]}: Kafka 4 takes no less")
        config[SEGMENT] = str(LEAST_SEGMENT)
    for each in (BEFORE, AFTER):
        if config.pop(each, None) is not None:
            notes.append(f"{each} is not set: it would refuse old records")
    if replicas != NO_REPLICATION and int(config.get(MIN_ISR, "1")) > replicas:
        config[MIN_ISR] = str(replicas)
        notes.append(f"{MIN_ISR}={replicas}: there are no more replicas")
    return TargetPlan(name, NewTopicSpec(name, partitions, replicas, {**config, **settings}), tuple(notes))


def existing_topic(
    topic: TopicDescription, partitions: int, config: Mapping[str, str], oldest: TimestampMs | None, now: TimestampMs
) -> TargetPlan:
    """Return the plan for a topic that exists. Raises InvalidRequest if it cannot take the records. Pure."""
    facts: dict[str, Any] = {"topic": topic.name}
    if len(topic.partitions) < partitions:
        raise InvalidRequest(
            "the target has too few partitions", **facts, partitions=len(topic.partitions), needed=partitions
        )
    if config.get(TIME_TYPE) == "LogAppendTime":
        raise InvalidRequest(
            f"the target has {TIME_TYPE}=LogAppendTime, so the stored times would be lost: set CreateTime", **facts
        )
    before = int(config.get(BEFORE, 2**63 - 1))
    if oldest is not None and now - oldest > before:
        raise InvalidRequest(f"the target refuses records as old as these: raise its {BEFORE}", **facts, limit=before)
    return TargetPlan(topic.name, None, ())


def retention_note(config: Mapping[str, str], oldest: TimestampMs | None, now: TimestampMs) -> tuple[str, ...]:
    """Return a note if brokers delete some of the records as soon as they are restored. Pure."""
    retention = int(config.get(RETENTION, "-1"))
    if oldest is None or retention < 0 or now - oldest <= retention:
        return ()
    age = show_duration((now - oldest) // 1000)
    return (f"{RETENTION}={retention}: brokers soon delete what is older; the oldest record is {age} old",)


def plan_target(
    broker: Broker,
    name: str,
    partitions: int,
    backup: TopicBackup | None,
    settings: Mapping[str, str],
    times: tuple[TimestampMs | None, TimestampMs],
) -> TargetPlan:
    """Return the plan for the target topic. ``times``: of the oldest record, and now.

    Raises the errors of `existing_topic`.
    """
    oldest, now = times
    try:
        topic = describe_topic(broker.raw, name)
    except UnknownTopic:
        plan = new_topic(name, partitions, len(broker.control.cluster().brokers), backup, settings)
        assert plan.create is not None
        return replace(plan, notes=plan.notes + retention_note(plan.create.config, oldest, now))
    code, config = broker.raw.on_any(lambda each: broker.raw.topic_configs(each, [name], _ASKED))[name]
    check(code, topic=name, needs="DESCRIBE_CONFIGS")
    plan = existing_topic(topic, partitions, config, oldest, now)
    unused = (f"{name} exists, so these settings are not applied: {', '.join(settings)}",) if settings else ()
    return replace(plan, notes=plan.notes + unused + retention_note(config, oldest, now))


def opened_topic(broker: Broker, plan: TargetPlan, clock: Clock) -> TopicDescription:
    """Create the topic of the plan if it is to be created. Return it once each partition has a leader."""
    if plan.create is not None:
        create_topic(broker.raw, plan.create)
    deadline = clock.monotonic() + KNOWN_S
    while True:
        try:
            topic = describe_topic(broker.raw, plan.topic)
            if all(each.leader is not None for each in topic.partitions):
                return topic
        except (UnknownTopic, BrokerUnavailable, TimedOut):
            if clock.monotonic() > deadline:
                raise
        if clock.monotonic() > deadline:
            raise BrokerUnavailable("a partition of the target has no leader", topic=plan.topic)
        clock.sleep(AGAIN_S)
