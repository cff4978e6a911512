"""Raw requests' parameters and brokers' answers, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..state.epochs import LeaderEpoch
from ..state.errors import TierstateError
from ..state.ids import BrokerId, TopicId
from ..state.offsets import Offset, TimestampMs
from ..state.routing import Isolation
from .error_codes import error_of

Address = tuple[str, int]
"""Host and port."""
Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class FetchSpec:
    """A fetch from a partition's log. ``wait_ms``: milliseconds that the broker may wait for the first byte.

    ``topic_id``: refuse any other topic.
    """

    topic: str
    partition: int
    offset: Offset
    max_bytes: int
    isolation: Isolation
    leader_epoch: LeaderEpoch | None = None
    wait_ms: int = 0
    topic_id: TopicId | None = None


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition in the metadata, which may be stale on any broker: a hint, never a fence.

    ``leader`` is None during an election.
    """

    partition: int
    leader: BrokerId | None
    leader_epoch: LeaderEpoch | None
    replicas: tuple[BrokerId, ...] = ()
    in_sync: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True)
class RawTopic:
    """A topic in the metadata. ``error``: the broker's answer instead of a description.

    ``operations``: Kafka's codes of the operations that the credentials are allowed, if the request asked for them.
    """

    name: str
    topic_id: TopicId | None
    internal: bool
    partitions: dict[int, PartitionDescription]
    error: TierstateError | None
    operations: frozenset[int]


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


RawConfig = tuple[int, dict[str, str]]
"""Kafka's error code (0: no error), and settings by Kafka's names, without those that are null."""


@dataclass(frozen=True, slots=True)
class RawFetch:
    """``batches``: as stored by the broker; the last may be cut off. ``aborted``: pairs (producer id, first offset)."""

    code: int
    batches: bytes
    high_watermark: Offset
    last_stable_offset: Offset
    log_start: Offset
    aborted: tuple[tuple[int, Offset], ...]


def metadata_of(answer: Any) -> RawMetadata:
    """Convert a MetadataResponse of kafka-python."""
    brokers = {BrokerId(one.node_id): (str(one.host), int(one.port)) for one in answer.brokers}
    return RawMetadata(answer.cluster_id or "", brokers, {one.name: topic_of(one) for one in answer.topics})


def topic_of(topic: Any) -> RawTopic:
    partitions = {}
    for one in sorted(topic.partitions, key=lambda each: each.partition_index):
        epoch = LeaderEpoch(one.leader_epoch) if one.leader_epoch >= 0 else None
        leader = BrokerId(one.leader_id) if one.leader_id >= 0 else None
        partitions[one.partition_index] = PartitionDescription(
            one.partition_index, leader, epoch, tuple(one.replica_nodes), tuple(one.isr_nodes)
        )
    topic_id = TopicId.of(topic.topic_id.bytes) if topic.topic_id is not None and topic.topic_id.int else None
    error, operations = error_of(topic.error_code, topic=topic.name), frozenset(topic.authorized_operations or ())
    return RawTopic(topic.name or "", topic_id, topic.is_internal, partitions, error, operations)


def configs_of(answer: Any) -> dict[str, RawConfig]:
    """Convert a DescribeConfigsResponse of kafka-python."""
    return {
        one.resource_name: (one.error_code, {each.name: each.value for each in one.configs if each.value is not None})
        for one in answer.results
    }
