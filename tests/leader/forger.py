"""A plain producer with rights on the tier-state topic: its facts name the objects of another topic, ``events``."""

from __future__ import annotations

from dataclasses import replace

from tests.state.conftest import Build
from tierstate.state.epochs import LeaderEpoch
from tierstate.state.facts import (
    DeleteReason,
    Fact,
    SegmentCopyFinished,
    SegmentCopyStarted,
    SegmentDeleteFinished,
    SegmentDeleteStarted,
)
from tierstate.state.ids import FactId, TopicId, TopicIdPartition
from tierstate.state.object_keys import ObjectKind, ObjectName, object_key
from tierstate.state.offsets import Offset, Position, TimestampMs
from tierstate.state.segment import CopyAttempt, RemoteSegment, Term
from tierstate.storage.object_store import ObjectStore

EVENTS = TopicIdPartition(TopicId.of(b"events-topic-id!"), 0)
ONLY_COPY = b"the only copy"
COUNTER = 9_000_000


def events_segment(number: int = 77, start: int = 0, end: int = 99) -> RemoteSegment:
    """Return an honest copy of 100 records of ``events``; its own facts are not part of this world."""
    build = Build()
    segment = build.segment(number, Term(LeaderEpoch(0), Position(0), FactId.of(bytes(16))), start, end)
    key = str(ObjectName("events", EVENTS, Offset(start), segment.segment_id))
    return replace(segment, partition=EVENTS, topic="events", object_key=key)


def keys_of(segment: RemoteSegment) -> set[str]:
    return {object_key(segment.object_key, kind) for kind in ObjectKind}


def put_events(store: ObjectStore) -> RemoteSegment:
    """Put the three objects of a segment of ``events``."""
    segment = events_segment()
    for key in keys_of(segment):
        store.put_if_absent(key, ONLY_COPY)
    return segment


def stolen(segment: RemoteSegment, partition: TopicIdPartition, topic: str, term: Term) -> RemoteSegment:
    """Return the segment as if ``term`` of another partition had copied it."""
    return replace(segment, partition=partition, topic=topic, term=term)


def forged(segment: RemoteSegment, at: int = 0) -> dict[str, Fact]:
    """Return the facts that can be forged about a stolen segment, in the term that it names."""
    now, counter = TimestampMs(at), COUNTER
    attempt = CopyAttempt(
        partition=segment.partition,
        topic=segment.topic,
        segment_id=segment.segment_id,
        offsets=segment.offsets,
        object_key=segment.object_key,
        term=segment.term,
        broker_id=segment.broker_id,
        started_at=now,
    )
    return {
        "copy-started": SegmentCopyStarted(attempt),
        "copy-finished": SegmentCopyFinished(segment),
        "delete-started": SegmentDeleteStarted(segment, segment.term, counter, DeleteReason.RETENTION_TIME, now),
        "delete-finished": SegmentDeleteFinished(segment, segment.term, counter + 1, now),
    }
