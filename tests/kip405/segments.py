"""Segments as Kafka's metadata describes them."""

from __future__ import annotations

from tierstate.kip405.view import NO_TERM
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.ids import BrokerId, RemoteSegmentId, TopicId, TopicIdPartition
from tierstate.state.object_keys import ObjectKeys
from tierstate.state.offsets import Offset, OffsetRange, Position, TimestampMs
from tierstate.state.segment import UNKNOWN, UNKNOWN_RANGES, Compression, RemoteSegment, Term

PARTITION = TopicIdPartition(TopicId.of(b"t" * 16), 0)


def segment_of(start: int, end: int, epoch: int = 0) -> RemoteSegment:
    segment_id = RemoteSegmentId.of(start.to_bytes(8) + end.to_bytes(8))
    return RemoteSegment(
        PARTITION,
        "orders",
        segment_id,
        ObjectKeys().base_key("orders", PARTITION.topic_id, 0, start, segment_id),
        OffsetRange(Offset(start), Offset(end)),
        last_record_offset=Offset(UNKNOWN),
        record_count=UNKNOWN,
        leader_epochs=Lineage.of((epoch, start)),
        max_timestamp=TimestampMs(0),
        log_bytes=1000,
        log_object_bytes=1000,
        indexes_object_bytes=0,
        manifest_bytes=0,
        log_sha256=b"",
        log_crc32c=UNKNOWN,
        indexes_sha256=b"",
        compression=Compression.NONE,
        encryption_key_id=None,
        transaction_index_empty=False,
        aborted=UNKNOWN_RANGES,
        broker_id=BrokerId(1),
        term=Term(LeaderEpoch(epoch), Position(0), NO_TERM),
        copied_at=TimestampMs(0),
    )
