"""Brokers' answers to raw requests, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..state.epochs import LeaderEpoch
from ..state.errors import TierstateError
from ..state.ids import BrokerId, TopicId
from ..state.offsets import Offset, TimestampMs
from .error_codes import error_of

Address = tuple[str, int]
"""Host and port."""
Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class RawPartition:
    """A partition in the cluster metadata, which may be stale: a hint, never a fence."""

    leader: BrokerId | None
    leader_epoch: LeaderEpoch | None
    replicas: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class RawTopic:
    """A topic in the cluster metadata. ``error``: the broker's answer instead of a description."""

    name: str
    topic_id: TopicId | None
    internal: bool
    partitions: dict[int, RawPartition]
    error: TierstateError | None


@dataclass(frozen=True, slots=True)
class RawMetadata:
    cluster_id: str
    brokers: dict[BrokerId, Address]
    topics: dict[str, RawTopic]


@dataclass(frozen=True, slots=True)
class RawOffset:
    """``code`` is Kafka's error code; 0: no error. ``offset`` is -1 if no record has this timestamp or a later one."""

    code: int
    offset: Offset
    timestamp: TimestampMs
    leader_epoch: LeaderEpoch | None


@dataclass(frozen=True, slots=True)
class RawConfig:
    """``code`` is Kafka's error code; 0: no error. ``entries``: settings by Kafka's names."""

    code: int
    entries: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class RawFetch:
    """``batches``: as stored by the broker; the last may be cut off. ``aborted``: pairs (producer id, first offset)."""

    code: int
    batches: bytes
    high_watermark: Offset
    last_stable_offset: Offset
    log_start: Offset
    aborted: tuple[tuple[int, Offset], ...]


@dataclass(frozen=True, slots=True)
class RawProducer:
    """``last_timestamp``: the time of the newest batch, by the producer's clock; -1: unknown. ``open_from``: the first
    offset of the producer's open transaction; None: no transaction is open.
    """

    producer_id: int
    epoch: int
    last_timestamp: TimestampMs
    open_from: Offset | None


@dataclass(frozen=True, slots=True)
class RawProducers:
    """``code`` is Kafka's error code; 0: no error."""

    code: int
    producers: tuple[RawProducer, ...]


def metadata_of(answer: Any) -> RawMetadata:
    """Convert a MetadataResponse of kafka-python."""
    brokers = {BrokerId(one.node_id): (str(one.host), int(one.port)) for one in answer.brokers}
    return RawMetadata(answer.cluster_id or "", brokers, {one.name: topic_of(one) for one in answer.topics})


def topic_of(topic: Any) -> RawTopic:
    partitions = {}
    for one in topic.partitions:
        epoch = LeaderEpoch(one.leader_epoch) if one.leader_epoch >= 0 else None
        leader = BrokerId(one.leader_id) if one.leader_id >= 0 else None
        partitions[one.partition_index] = RawPartition(leader, epoch, tuple(one.replica_nodes), tuple(one.isr_nodes))
    topic_id = TopicId.of(topic.topic_id.bytes) if topic.topic_id is not None and topic.topic_id.int else None
    error = error_of(topic.error_code, topic=topic.name)
    return RawTopic(topic.name or "", topic_id, topic.is_internal, partitions, error)


def configs_of(answer: Any) -> dict[str, RawConfig]:
    return {
        one.resource_name: RawConfig(one.error_code, {each.name: each.value for each in one.configs})
        for one in answer.results
    }


def producers_of(answer: Any) -> RawProducers:
    """Convert one partition of kafka-python's DescribeProducersResponse."""
    producers = tuple(
        RawProducer(
            one.producer_id,
            one.producer_epoch,
            TimestampMs(one.last_timestamp),
            Offset(one.current_txn_start_offset) if one.current_txn_start_offset >= 0 else None,
        )
        for one in answer.active_producers
    )
    return RawProducers(answer.error_code, producers)
