"""A copied segment: what a copy attempt is, and the full descriptor of a finished one.

Three types, not one with a status: `CopyCandidate` (`rules/candidates.py`: a rolled segment on this broker's disk) →
`CopyAttempt` (objects of this id may exist) → `RemoteSegment` (complete, verified).
The same descriptor is in `copy-finished` facts, delete facts and in the manifest (`docs/formats.md`).
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from enum import StrEnum

from .epochs import LeaderEpoch, Lineage
from .errors import InvalidRequest
from .ids import BrokerId, FactId, RemoteSegmentId, TopicIdPartition
from .offsets import Offset, OffsetRange, Position, TimestampMs

MAX_INLINE_ENTRIES = 256
"""More aborted ranges than this live in the objects only; the fact keeps their count, bounds and hash."""


@dataclass(frozen=True, slots=True)
class Term:
    """One leader's reign, ordered by (epoch, position of its own `LeaderElected`); ``id`` tells twins apart."""

    epoch: LeaderEpoch
    position: Position
    id: FactId

    @property
    def order(self) -> tuple[int, int]:
        return self.epoch, self.position

    def __str__(self) -> str:
        return f"{self.epoch}/{self.position}"


class Compression(StrEnum):
    """How the chunks of the log object are stored."""

    NONE = "none"
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True, order=True)
class AbortedRange:
    """An aborted transaction's records of one producer: offsets ``first`` to ``last`` (its marker), both included.

    It applies only to transactional batches of that producer.
    """

    producer_id: int
    first: Offset
    last: Offset


@dataclass(frozen=True, slots=True)
class AbortedRanges:
    """The aborted ranges that touch a segment. ``entries`` is empty when there are more than `MAX_INLINE_ENTRIES`."""

    count: int
    sha256: bytes
    bounds: OffsetRange | None
    entries: tuple[AbortedRange, ...]

    @classmethod
    def of(cls, ranges: tuple[AbortedRange, ...]) -> AbortedRanges:
        ordered = tuple(sorted(ranges, key=lambda r: (r.first, r.producer_id, r.last)))
        digest = hashlib.sha256(b"".join(struct.pack(">qqq", r.producer_id, r.first, r.last) for r in ordered)).digest()
        bounds = OffsetRange(min(r.first for r in ordered), max(r.last for r in ordered)) if ordered else None
        return cls(len(ordered), digest, bounds, ordered if len(ordered) <= MAX_INLINE_ENTRIES else ())

    @property
    def inline(self) -> bool:
        """Whether ``entries`` is the whole list; otherwise it is read from the objects."""
        return len(self.entries) == self.count


@dataclass(frozen=True, slots=True)
class CopyAttempt:
    """One attempt to copy one rolled segment. ``object_key`` is the whole base key; objects are named by suffix.

    ``offsets``: base offset to the next segment's base offset minus one.
    """

    partition: TopicIdPartition
    topic: str
    segment_id: RemoteSegmentId
    offsets: OffsetRange
    object_key: str
    term: Term
    broker_id: BrokerId
    started_at: TimestampMs


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A complete, verified copy of one log segment.

    ``offsets`` is the range it stands for, gap-free by construction; records may be missing inside it and
    ``last_record_offset`` may be lower than its end. Sizes are bytes: ``log_bytes`` of the plain log,
    ``log_object_bytes`` and ``indexes_object_bytes`` as stored. Checksums are of plain bytes.
    """

    partition: TopicIdPartition
    topic: str
    segment_id: RemoteSegmentId
    object_key: str
    offsets: OffsetRange
    last_record_offset: Offset
    record_count: int
    leader_epochs: Lineage
    max_timestamp: TimestampMs
    log_bytes: int
    log_object_bytes: int
    indexes_object_bytes: int
    manifest_bytes: int
    log_sha256: bytes
    log_crc32c: int
    indexes_sha256: bytes
    compression: Compression
    encryption_key_id: str | None
    transaction_index_empty: bool
    aborted: AbortedRanges
    broker_id: BrokerId
    term: Term
    copied_at: TimestampMs

    def __post_init__(self) -> None:
        if not self.leader_epochs.entries:
            raise InvalidRequest("a segment has at least one leader epoch", segment_id=self.segment_id)

    @property
    def has_gaps(self) -> bool:
        """Whether some of its offsets have no record: of markers, or where a topic was compacted once."""
        return self.record_count < len(self.offsets)

    @property
    def object_bytes(self) -> int:
        """What the store holds for it: three objects."""
        return self.log_object_bytes + self.indexes_object_bytes + self.manifest_bytes


class SegmentState(StrEnum):
    """KIP-405's words; `meaning.py` has the table."""

    COPY_SEGMENT_STARTED = "COPY_SEGMENT_STARTED"
    COPY_SEGMENT_FINISHED = "COPY_SEGMENT_FINISHED"
    DELETE_SEGMENT_STARTED = "DELETE_SEGMENT_STARTED"
    DELETE_SEGMENT_FINISHED = "DELETE_SEGMENT_FINISHED"
    ABANDONED = "ABANDONED"
