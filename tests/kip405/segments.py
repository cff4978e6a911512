"""Segments as Kafka's metadata describes them."""

from __future__ import annotations

from tierstate.kip405 import view
from tierstate.kip405.records import SegmentRecord
from tierstate.state.epochs import Lineage
from tierstate.state.ids import BrokerId, RemoteSegmentId, TopicId, TopicIdPartition
from tierstate.state.object_keys import ObjectKeys
from tierstate.state.offsets import Offset, OffsetRange, TimestampMs
from tierstate.state.segment import RemoteSegment

PARTITION = TopicIdPartition(TopicId.of(b"t" * 16), 0)


def segment_of(start: int, end: int, epoch: int = 0) -> RemoteSegment:
    segment_id = RemoteSegmentId.of(start.to_bytes(8) + end.to_bytes(8))
    record = SegmentRecord(
        PARTITION,
        "orders",
        segment_id,
        OffsetRange(Offset(start), Offset(end)),
        BrokerId(1),
        max_timestamp=TimestampMs(0),
        at=TimestampMs(0),
        leader_epochs=Lineage.of((epoch, start)),
        log_bytes=1000,
        transaction_index_empty=False,
    )
    key = ObjectKeys().base_key("orders", PARTITION.topic_id, 0, start, segment_id)
    return view.segment_of(record, key, None, TimestampMs(0))
