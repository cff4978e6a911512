"""Copied segments: the description of a copy attempt, and the full descriptor of a finished copy.

There are three types, not one type with a status: `CopyCandidate` (`rules/candidates.py`: a rolled segment on this
broker's disk) → `CopyAttempt` (objects of this id may exist) → `RemoteSegment` (complete, verified). The same
descriptor is in `copy-finished` facts, delete facts and in the manifest (`docs/formats.md`).
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

UNKNOWN = -1
"""A count, checksum or offset of a segment that Kafka itself copied: its metadata does not have them."""
MAX_INLINE_ENTRIES = 256
"""The maximum number of aborted ranges in a fact. If there are more, the fact has only their count, bounds and hash."""


@dataclass(frozen=True, slots=True)
class Term:
    """The term of one leader, ordered by (epoch, position of its `LeaderElected`). ``id`` is unique to that fact."""

    epoch: LeaderEpoch
    position: Position
    id: FactId

    @property
    def order(self) -> tuple[int, int]:
        return self.epoch, self.position

    def __str__(self) -> str:
        return f"{self.epoch}/{self.position}"


class Compression(StrEnum):
    """The compression of the chunks of the log object."""

    NONE = "none"
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True, order=True)
class AbortedRange:
    """The offsets ``first`` to ``last`` (the marker) of an aborted transaction of one producer, both inclusive.

    The range applies only to transactional batches of that producer.
    """

    producer_id: int
    first: Offset
    last: Offset


@dataclass(frozen=True, slots=True)
class AbortedRanges:
    """The aborted ranges that overlap a segment. ``entries`` is empty if there are more than `MAX_INLINE_ENTRIES`."""

    count: int
    sha256: bytes
    bounds: OffsetRange | None
    entries: tuple[AbortedRange, ...]

    @classmethod
    def of(cls, ranges: tuple[AbortedRange, ...], inline: int = MAX_INLINE_ENTRIES) -> AbortedRanges:
        """Return these ranges in order. ``inline``: the most entries that are kept."""
        ordered = tuple(sorted(ranges, key=lambda r: (r.first, r.producer_id, r.last)))
        digest = hashlib.sha256(b"".join(struct.pack(">qqq", r.producer_id, r.first, r.last) for r in ordered)).digest()
        bounds = OffsetRange(min(r.first for r in ordered), max(r.last for r in ordered)) if ordered else None
        return cls(len(ordered), digest, bounds, ordered if len(ordered) <= inline else ())

    @property
    def inline(self) -> bool:
        """Return whether ``entries`` is complete. Otherwise the list is read from the objects."""
        return len(self.entries) == self.count


UNKNOWN_RANGES = AbortedRanges(UNKNOWN, b"", None, ())
"""The ranges of a segment that Kafka itself copied, until they are read (`kip405/aborted.py`)."""


@dataclass(frozen=True, slots=True)
class CopyAttempt:
    """One attempt to copy one rolled segment. ``object_key`` is the base key, to which each object adds its suffix.

    ``offsets``: from the base offset to the next segment's base offset minus one.
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

    ``offsets`` is the range that it covers, gap-free by construction. Records may be missing inside it, and
    ``last_record_offset`` may be lower than its end. Sizes are in bytes: ``log_bytes`` of the plain log,
    ``log_object_bytes`` and ``indexes_object_bytes`` as stored. Checksums cover the plain bytes. If Kafka itself copied
    the segment, it is not `described`: its last record, record count, checksums, compression and aborted ranges are
    unknown, and ``log_object_bytes`` is the size of all its objects, if it is known, else ``log_bytes``.
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
    def described(self) -> bool:
        """Return whether a fact of tierstate describes the copy, with its record count and its checksums."""
        return self.record_count != UNKNOWN

    @property
    def has_gaps(self) -> bool:
        """Return whether some offsets may have no record: control records, or the topic was compacted at some time."""
        return self.record_count < len(self.offsets)

    @property
    def object_bytes(self) -> int:
        """Return the total size of the segment's three objects in bytes."""
        return self.log_object_bytes + self.indexes_object_bytes + self.manifest_bytes


class SegmentState(StrEnum):
    """The states of a segment, with KIP-405's names; `lifecycle.py` has the table."""

    COPY_SEGMENT_STARTED = "COPY_SEGMENT_STARTED"
    COPY_SEGMENT_FINISHED = "COPY_SEGMENT_FINISHED"
    DELETE_SEGMENT_STARTED = "DELETE_SEGMENT_STARTED"
    DELETE_SEGMENT_FINISHED = "DELETE_SEGMENT_FINISHED"
    ABANDONED = "ABANDONED"
