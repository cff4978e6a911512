"""What raw requests ask and what brokers answer, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from ..state.epochs import LeaderEpoch
from ..state.errors import TierstateError
from ..state.ids import BrokerId, TopicId
from ..state.offsets import Offset, TimestampMs
from ..state.routing import Isolation

Address = tuple[str, int]
"""Host and port."""


@dataclass(frozen=True, slots=True)
class RawPartition:
    """What the metadata says of a partition: a hint, never a fence."""

    leader: BrokerId | None
    leader_epoch: LeaderEpoch | None
    replicas: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class RawTopic:
    """``error`` is what the broker answered in its place."""

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
    """``code`` is Kafka's error code; 0 is none. ``offset`` is -1 when no record fits the timestamp."""

    code: int
    offset: Offset
    timestamp: TimestampMs
    leader_epoch: LeaderEpoch | None


@dataclass(frozen=True, slots=True)
class RawFetch:
    """``batches`` as the broker stores them; the last one may be cut. ``aborted``: (producer id, first offset)."""

    code: int
    batches: bytes
    high_watermark: Offset
    last_stable_offset: Offset
    log_start: Offset
    aborted: tuple[tuple[int, Offset], ...]


@dataclass(frozen=True, slots=True)
class FetchSpec:
    """What to fetch. ``wait_ms``: how long the broker may wait for the first byte. ``topic_id`` fences the topic."""

    topic: str
    partition: int
    offset: Offset
    max_bytes: int
    isolation: Isolation
    leader_epoch: LeaderEpoch | None = None
    wait_ms: int = 0
    topic_id: TopicId | None = None
