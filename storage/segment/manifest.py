"""The manifest of a segment as values: the JSON object that is written last and commits it (`manifest_json.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ...state.epochs import Lineage
from ...state.ids import RemoteSegmentId, TopicId, TopicIdPartition
from ...state.offsets import Offset, TimestampMs
from ...state.segment import AbortedRange, RemoteSegment
from .chunks import ChunkIndex


class IndexKind(StrEnum):
    """The parts of the indexes object, in the order they lie there; the value is the manifest's word."""

    OFFSET = "offset"
    TIME = "timestamp"
    PRODUCER_SNAPSHOT = "producerSnapshot"
    LEADER_EPOCHS = "leaderEpoch"
    TRANSACTION = "transaction"


@dataclass(frozen=True, slots=True)
class IndexSpan:
    """Bytes of one index in the indexes object, as stored."""

    position: int
    size: int


IndexSpans = dict[IndexKind, IndexSpan | None]
"""The span of every kind. Only the transaction index may be None: the segment had none."""


@dataclass(frozen=True, slots=True)
class Encryption:
    """The segment's data key, wrapped under the key ``key_id`` of a key ring, and the AAD of all its chunks.

    ``key_fingerprint``: of that key (`KeyPair.fingerprint`), as an id may be used twice; None: by another writer.
    """

    key_id: str
    wrapped_key: bytes
    aad: bytes
    key_fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class SegmentMetadata:
    """Kafka's ``RemoteLogSegmentMetadata``. ``transaction_index_empty`` None: written by Kafka before 4.0."""

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
    """The CRC-32C of the log object and of the indexes object as they were sent: compressed, encrypted.

    ``chunks``: the CRC-32C of each chunk as it is stored; empty in manifests of releases that did not keep them.
    """

    log: int
    indexes: int
    chunks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TierstateBlock:
    """The fields that Aiven's manifest lacks. ``chunk_first_offsets``: see `chunks.first_offsets`.

    ``aborted``: all aborted ranges, also when the descriptor has too many to hold them inline.
    ``sent``: None in manifests of releases that did not keep them.
    ``undecodable``: the base offset of the first batch that readers refuse and Kafka serves (`is_decodable`).
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
    """``metadata`` is None when absent or of an unknown shape; ``tierstate`` is None when another writer wrote it."""

    chunks: ChunkIndex
    indexes: IndexSpans
    compression: bool
    encryption: Encryption | None = None
    metadata: SegmentMetadata | None = None
    tierstate: TierstateBlock | None = None


def metadata_of(segment: RemoteSegment, started_at: TimestampMs) -> SegmentMetadata:
    """Return Kafka's description of our segment. ``started_at``: when the copy began."""
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
