"""Decodes the records of ``__remote_log_metadata``, Kafka's own topic about segments that it tiered (KIP-405).

Source: ``RemoteLogSegmentMetadataRecord.json`` and the three other schemas in Kafka's storage jar, 3.9.1 and 4.3.0.
Each record is a frame version, an api key and a version, as unsigned varints, and then the flexible struct. Unknown
tagged fields are skipped. The records have no keys. All errors are CorruptData with the position in the record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ..broker.wire import Frame
from ..state.epochs import EpochEntry, LeaderEpoch, Lineage
from ..state.errors import CorruptData, InvalidRequest
from ..state.ids import BrokerId, RemoteSegmentId, TopicId, TopicIdPartition
from ..state.offsets import Offset, OffsetRange, TimestampMs
from ..state.segment import SegmentState

FRAME_VERSION, VERSION = 1, 0
SEGMENT, UPDATE, PARTITION_DELETE = 0, 1, 2
STATES = (
    SegmentState.COPY_SEGMENT_STARTED,
    SegmentState.COPY_SEGMENT_FINISHED,
    SegmentState.DELETE_SEGMENT_STARTED,
    SegmentState.DELETE_SEGMENT_FINISHED,
)
"""The states by Kafka's number (``RemoteLogSegmentState``)."""
DELETE_MARKED, DELETE_STARTED, DELETE_FINISHED = range(3)
"""The states of a partition's deletion (``RemotePartitionDeleteState``)."""
TRANSACTION_INDEX_EMPTY = 0
"""The tag of that field. Kafka 4.x writes it if it is true, Kafka 3.9 never."""
REMOTE_SIZE, OBJECT_PREFIX, OBJECT_KEY = range(3)
"""The tags of the custom metadata of Aiven's plugin (``SegmentCustomMetadataField``)."""
_LONGEST_VARLONG = 10

Decoded = TypeVar("Decoded")


@dataclass(frozen=True, slots=True)
class CustomMetadata:
    """The custom metadata of Aiven's plugin: bytes of all three objects, and the two parts of the object key.

    Each field is None if the plugin does not record it, which is its default.
    """

    remote_bytes: int | None = None
    prefix: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """The start of an attempt to copy a segment. ``offsets``: up to the next segment's base offset minus one.

    ``log_bytes``: of the plain log. ``transaction_index_empty``: False if it is unknown. It concerns the segment's own
    index: aborted records may have their entry in the index of a later segment.
    """

    partition: TopicIdPartition
    topic: str
    segment_id: RemoteSegmentId
    offsets: OffsetRange
    broker_id: BrokerId
    max_timestamp: TimestampMs
    at: TimestampMs
    leader_epochs: Lineage
    log_bytes: int
    transaction_index_empty: bool


@dataclass(frozen=True, slots=True)
class SegmentUpdate:
    """A new state of a segment. ``custom`` replaces what an earlier update had, also if it is empty."""

    partition: TopicIdPartition
    topic: str
    segment_id: RemoteSegmentId
    broker_id: BrokerId
    at: TimestampMs
    custom: bytes
    state: SegmentState


@dataclass(frozen=True, slots=True)
class PartitionDelete:
    """A step of a partition's deletion. Kafka up to 4.3 writes none (seen), but defines it."""

    partition: TopicIdPartition
    topic: str
    state: int


Record = SegmentRecord | SegmentUpdate | PartitionDelete


def topic_id_of(value: bytes) -> bytes:
    """Return the 16 bytes of the topic id, without decoding the rest. Raises CorruptData."""

    def read(frame: Frame) -> bytes:
        _kind(frame)
        frame.raw_string(flexible=True)
        return _uuid(frame)

    return _decoded(value, read)


def decode_record(value: bytes) -> Record:
    """Decode a record. Every byte is accounted for. Raises CorruptData."""

    def read(frame: Frame) -> Record:
        kind = _kind(frame)
        record = _segment(frame) if kind == SEGMENT else _update(frame) if kind == UPDATE else _delete(frame)
        frame.done()
        return record

    return _decoded(value, read)


def decode_custom(data: bytes) -> CustomMetadata:
    """Decode the custom metadata of Aiven's plugin: tagged fields without a struct before them. Raises CorruptData."""

    def read(frame: Frame) -> CustomMetadata:
        if frame.at == frame.end:
            return CustomMetadata()
        size: int | None = None
        texts: dict[int, str] = {}
        for _ in range(frame.uvarint()):
            tag, stop = frame.uvarint(), frame.uvarint() + frame.at
            if tag == REMOTE_SIZE:
                size = _varlong(frame)
            elif tag in (OBJECT_PREFIX, OBJECT_KEY):
                texts[tag] = _text(frame)
            else:
                frame.skip(stop - frame.at)
            if frame.at != stop:
                raise CorruptData("a tagged field has another length", position=frame.at, expected=stop)
        frame.done()
        return CustomMetadata(size, texts.get(OBJECT_PREFIX), texts.get(OBJECT_KEY))

    return _decoded(data, read)


def _decoded(value: bytes, read: Callable[[Frame], Decoded]) -> Decoded:
    try:
        return read(Frame(value))
    except InvalidRequest as error:  # of the frame, an identifier, a range or a lineage
        raise CorruptData(f"not a record of remote log metadata: {error.message}", **error.facts) from error


def _kind(frame: Frame) -> int:
    """Read the three varints before the struct, and return the kind of record."""
    frame_version, kind, version = frame.uvarint(), frame.uvarint(), frame.uvarint()
    if frame_version != FRAME_VERSION or version != VERSION or kind not in (SEGMENT, UPDATE, PARTITION_DELETE):
        raise CorruptData(
            "remote log metadata of an unknown form", frame_version=frame_version, api_key=kind, version=version
        )
    return kind


def _segment(frame: Frame) -> SegmentRecord:
    partition, topic, segment_id = _segment_id(frame)
    offsets = OffsetRange(Offset(frame.int64()), Offset(frame.int64()))
    broker_id, max_timestamp, at = BrokerId(frame.int32()), TimestampMs(frame.int64()), TimestampMs(frame.int64())
    entries = []
    for _ in range(frame.count(flexible=True, smallest=13)):
        entries.append(EpochEntry(LeaderEpoch(frame.int32()), Offset(frame.int64())))
        frame.tags(flexible=True)
    if not entries:
        raise CorruptData("a segment has at least one leader epoch", position=frame.at)
    log_bytes = frame.int32()
    _bytes(frame)  # custom metadata comes with the update
    state = _state(frame)
    if log_bytes < 0 or state is not SegmentState.COPY_SEGMENT_STARTED:
        raise CorruptData("a segment cannot begin so", position=frame.at, log_bytes=log_bytes, state=state)
    empty = False
    for _ in range(frame.uvarint()):
        tag, size = frame.uvarint(), frame.uvarint()
        begin = frame.skip(size)
        if tag == TRANSACTION_INDEX_EMPTY:
            if size != 1:
                raise CorruptData("not a boolean", position=begin, bytes=size)
            empty = frame.data[begin] != 0
    lineage = Lineage(tuple(entries))
    return SegmentRecord(partition, topic, segment_id, offsets, broker_id, max_timestamp, at, lineage, log_bytes, empty)


def _update(frame: Frame) -> SegmentUpdate:
    partition, topic, segment_id = _segment_id(frame)
    broker_id, at = BrokerId(frame.int32()), TimestampMs(frame.int64())
    custom, state = _bytes(frame), _state(frame)
    frame.tags(flexible=True)
    return SegmentUpdate(partition, topic, segment_id, broker_id, at, custom, state)


def _delete(frame: Frame) -> PartitionDelete:
    partition, topic = _partition(frame)
    frame.int32()  # the broker
    frame.int64()  # the time
    state = frame.int8()
    if state not in (DELETE_MARKED, DELETE_STARTED, DELETE_FINISHED):
        raise CorruptData("no such state of a partition's deletion", position=frame.at, state=state)
    frame.tags(flexible=True)
    return PartitionDelete(partition, topic, state)


def _segment_id(frame: Frame) -> tuple[TopicIdPartition, str, RemoteSegmentId]:
    partition, topic = _partition(frame)
    segment_id = RemoteSegmentId.of(_uuid(frame))
    frame.tags(flexible=True)
    return partition, topic, segment_id


def _partition(frame: Frame) -> tuple[TopicIdPartition, str]:
    topic, topic_id, number = _text(frame), TopicId.of(_uuid(frame)), frame.int32()
    frame.tags(flexible=True)
    return TopicIdPartition(topic_id, number), topic


def _state(frame: Frame) -> SegmentState:
    number = frame.int8()
    if not 0 <= number < len(STATES):
        raise CorruptData("no such state of a segment", position=frame.at, state=number)
    return STATES[number]


def _text(frame: Frame) -> str:
    raw, at = frame.raw_string(flexible=True), frame.at
    try:
        return (raw or b"").decode()
    except UnicodeDecodeError as error:
        raise CorruptData("a name is not UTF-8", position=at) from error


def _bytes(frame: Frame) -> bytes:
    """Read bytes; empty for null."""
    size = frame.length(flexible=True, short=False)
    begin = frame.skip(max(0, size))
    return bytes(frame.data[begin : frame.at])


def _uuid(frame: Frame) -> bytes:
    begin = frame.skip(16)
    return bytes(frame.data[begin : frame.at])


def _varlong(frame: Frame) -> int:
    """Read a zigzag varint of 64 bits (``ByteUtils.readVarlong``)."""
    value = 0
    for shift in range(0, 7 * _LONGEST_VARLONG, 7):
        byte = frame.data[frame.skip(1)]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1)
    raise CorruptData("a varint has no end", position=frame.at)
