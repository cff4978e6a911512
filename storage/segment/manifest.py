"""The values in a segment's manifest, the JSON object that is written last and commits it (`manifest_json.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ...state.epochs import Lineage
from ...state.ids import RemoteSegmentId, TopicId, TopicIdPartition
from ...state.offsets import Offset, TimestampMs
from ...state.segment import AbortedRange, RemoteSegment
from .chunks import ChunkIndex


class IndexKind(StrEnum):
    """The parts of the indexes object, in their order in it. Each value is the part's name in the manifest."""

    OFFSET = "offset"
    TIME = "timestamp"
    PRODUCER_SNAPSHOT = "producerSnapshot"
    LEADER_EPOCHS = "leaderEpoch"
    TRANSACTION = "transaction"


@dataclass(frozen=True, slots=True)
class IndexSpan:
    """The position of one index in the indexes object and its stored size, in bytes."""

    position: int
    size: int


IndexSpans = dict[IndexKind, IndexSpan | None]
"""The span of every kind. Only the transaction index may be None, if the segment had no such index."""


@dataclass(frozen=True, slots=True)
class Encryption:
    """The segment's data key, wrapped under the key ``key_id`` of a key ring, and the AAD of all chunks and indexes.

    ``key_fingerprint`` identifies the wrapping key (`KeyPair.fingerprint`), because two keys may have had the same id.
    It is None in manifests that do not have it, such as Aiven's.
    """

    key_id: str
    wrapped_key: bytes
    aad: bytes
    key_fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class SegmentMetadata:
    """Kafka's ``RemoteLogSegmentMetadata``. Kafka before 4.0 writes no ``transaction_index_empty``: then it is None."""

    partition: TopicIdPartition
    topic: str
    segment_id: RemoteSegmentId
    start_offset: Offset
    end_offset: Offset
    max_timestamp: TimestampMs
    broker_id: int
    event_timestamp: TimestampMs
    leader_epochs: Lineage
    transaction_index_empty: bool | None = None


@dataclass(frozen=True, slots=True)
class SentChecksums:
    """The CRC-32C of the log object and of the indexes object as they were sent, after compression and encryption.

    ``chunks`` has the CRC-32C of each stored chunk. It is empty in manifests of releases that did not record these.
    """

    log: int
    indexes: int
    chunks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TierstateBlock:
    """The fields that Aiven's manifest lacks. `chunks.first_offsets` describes ``chunk_first_offsets``.

    ``aborted`` has all aborted ranges, also if they are too many to be inline in the descriptor.
    ``sent`` is None in manifests of releases that did not record checksums.
    ``undecodable`` is the base offset of the first batch that Kafka serves but readers refuse (`is_decodable`).
    """

    segment: RemoteSegment
    cluster_id: str
    tier_state_topic_id: TopicId
    log_start_offset: Offset
    chunk_first_offsets: tuple[Offset | None, ...]
    aborted: tuple[AbortedRange, ...]
    sent: SentChecksums | None = None
    undecodable: Offset | None = None


@dataclass(frozen=True, slots=True)
class SegmentManifest:
    """A parsed manifest. ``metadata`` is None if absent or malformed, ``tierstate`` if another program wrote it."""

    chunks: ChunkIndex
    indexes: IndexSpans
    compression: bool
    encryption: Encryption | None = None
    metadata: SegmentMetadata | None = None
    tierstate: TierstateBlock | None = None


def metadata_of(segment: RemoteSegment, started_at: TimestampMs) -> SegmentMetadata:
    """Return Kafka's description of a segment of tierstate. ``started_at`` is the time at which the copy began."""
    return SegmentMetadata(
        segment.partition,
        segment.topic,
        segment.segment_id,
        segment.offsets.start,
        segment.offsets.end,
        segment.max_timestamp,
        segment.broker_id,
        started_at,
        segment.leader_epochs,
        segment.transaction_index_empty,
    )
