"""Any fact, drawn by the types of its fields, and one written-out sample of every kind (the golden bytes)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import strategies as st

from tierstate.state import facts as said
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.facts import DeleteReason, Fact, OperatorOrder, OrderKind
from tierstate.state.ids import BrokerId, FactId, KafkaUuid, RemoteSegmentId, TopicId, TopicIdPartition
from tierstate.state.offsets import Offset, OffsetRange, Position, TimestampMs
from tierstate.state.segment import AbortedRange, AbortedRanges, Compression, CopyAttempt, RemoteSegment, Term

INT32, INT64 = 2**31 - 1, 2**63 - 1
SMALL = {LeaderEpoch, BrokerId}  # Avro "int"
SMALL_FIELDS = {"count", "partitions"}
UNSIGNED = {LeaderEpoch, Position, Offset}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def values(kind: Any, name: str = "") -> st.SearchStrategy[Any]:
    """Draw any value of a type, up to the limits of its schema."""
    arguments = get_args(kind)
    if get_origin(kind) is tuple:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if arguments:
        return st.one_of([st.none() if each is type(None) else values(each) for each in arguments])
    if kind is Lineage:
        return lineages(0)
    if kind is OffsetRange:
        ends = st.tuples(values(Offset), values(Offset))
        return ends.map(lambda pair: OffsetRange(min(pair), max(pair)))
    if kind is TopicIdPartition:
        return st.builds(kind, values(TopicId), st.integers(0, INT32))
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        by_name = {each.name: values(hints[each.name], each.name) for each in fields(kind)}
        if kind is RemoteSegment:
            by_name["leader_epochs"] = lineages(1)
        return st.builds(kind, **by_name)
    return scalars(kind, name)


def scalars(kind: Any, name: str) -> st.SearchStrategy[Any]:
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return st.sampled_from(kind)
    if isinstance(kind, type) and issubclass(kind, KafkaUuid):
        return st.binary(min_size=16, max_size=16).map(kind.of)
    if kind is str:
        return TEXT
    if kind is bytes:
        return st.binary(max_size=40)
    if kind is bool:
        return st.booleans()
    largest = INT32 if kind in SMALL or name in SMALL_FIELDS else INT64
    return st.integers(0 if kind in UNSIGNED or name == "counter" else -largest - 1, largest)


@st.composite
def lineages(draw: st.DrawFn, least: int) -> Lineage:
    epochs = sorted(draw(st.sets(st.integers(0, INT32), min_size=least, max_size=4)))
    starts = sorted(draw(st.lists(st.integers(0, INT64), min_size=len(epochs), max_size=len(epochs))))
    return Lineage.of(*zip(epochs, starts, strict=True))


@pytest.fixture(scope="session")
def any_fact() -> st.SearchStrategy[Fact]:
    return st.one_of([values(kind) for kind in get_args(said.Fact)])


@pytest.fixture(scope="session")
def any_of() -> Callable[[Any], st.SearchStrategy[Any]]:
    return values


@pytest.fixture(scope="session")
def samples() -> dict[str, Fact]:
    """Return one fact of every kind; both subjects of a delete. Never changed: all versions' bytes are on file."""
    partition = TopicIdPartition(TopicId("EjRWeJCrze8SNFZ4kKvN7w"), 7)
    number, sid = FactId("_-_-_-_-_-_-_-_-_-_-_w"), RemoteSegmentId("AAAAAAAAAAAAAAAAAAAABQ")
    term = Term(LeaderEpoch(5), Position(70_000_000_000), FactId("AAAAAAAAAAAAAAAAAAAAAQ"))
    at, broker = TimestampMs(1_700_000_000_123), BrokerId(2)
    offsets = OffsetRange(Offset(5_000_000_000), Offset(5_000_999_999))
    key = "tiers/orders-EjRWeJCrze8SNFZ4kKvN7w/7/00000000005000000000-AAAAAAAAAAAAAAAAAAAABQ"
    lineage = Lineage.of((0, 0), (3, 4_000_000_000), (5, 5_000_500_000))
    attempt = CopyAttempt(partition, "orders.é", sid, offsets, key, term, broker, at)
    segment = RemoteSegment(
        partition=partition,
        topic="orders.é",
        segment_id=sid,
        object_key=key,
        offsets=offsets,
        last_record_offset=Offset(5_000_999_998),
        record_count=999_000,
        leader_epochs=lineage.within(offsets),
        max_timestamp=TimestampMs(-1),
        log_bytes=1_073_741_824,
        log_object_bytes=300_000_000,
        indexes_object_bytes=20_000,
        manifest_bytes=1_500,
        log_sha256=bytes(range(32)),
        log_crc32c=0xFFFFFFFF,
        indexes_sha256=bytes(range(255, 223, -1)),
        compression=Compression.ZSTD,
        encryption_key_id="key-1",
        transaction_index_empty=False,
        aborted=AbortedRanges.of((AbortedRange(4711, Offset(4_999_999_000), Offset(5_000_000_010)),)),
        broker_id=broker,
        term=term,
        copied_at=at,
    )
    plain = OffsetRange(Offset(0), Offset(9))
    return {
        "TopicMeta": said.TopicMeta(50, "cluster-1", at),
        "LeaderElected": said.LeaderElected(
            partition, "orders.é", LeaderEpoch(5), term.id, broker, "b2:9464", lineage, Offset(4), at
        ),
        "SegmentCopyStarted": said.SegmentCopyStarted(attempt),
        "SegmentCopyFinished": said.SegmentCopyFinished(segment),
        "SegmentDeleteStarted of an attempt": said.SegmentDeleteStarted(attempt, term, 3, DeleteReason.ABANDONED, at),
        "SegmentDeleteStarted": said.SegmentDeleteStarted(segment, term, 3, DeleteReason.RETENTION_TIME, at),
        "SegmentDeleteFinished of an attempt": said.SegmentDeleteFinished(attempt, term, 4, at),
        "SegmentDeleteFinished": said.SegmentDeleteFinished(segment, term, 4, at),
        "LogStartAdvanced": said.LogStartAdvanced(partition, Offset(42), term, 1, "retention-size", at),
        "LocalTrimIntended": said.LocalTrimIntended(partition, Offset(43), term, 2, at),
        "OperatorOrder": OperatorOrder(partition, number, OrderKind.PAUSE, None, False, "ops@example", at),
        "OperatorOrder with an offset": OperatorOrder(
            partition, number, OrderKind.DELETE_RECORDS, Offset(44), True, "ops@example", at
        ),
        "ReaderLease": said.ReaderLease(partition, number, plain, "spark-1", at),
        "IntegrityHold": said.IntegrityHold(partition, number, broker, "second value", "00ff", "01ff", at),
        "LogStartAdvanced in a lineage": said.LogStartAdvanced(
            partition, Offset(4_100_000_000), term, 1, "first term", at, Lineage.of((0, 0), (3, 4_000_000_000))
        ),
        "OperatorOrder in a lineage": OperatorOrder(
            partition, number, OrderKind.DELETE_RECORDS, Offset(44), False, "ops@example", at, Lineage.of((0, 0))
        ),
        "LineageSettled": said.LineageSettled(partition, number, lineage, "ops@example", at),
        "ContradictionSettled": said.ContradictionSettled(
            partition, number, "a at 7 is not what b at 6 began", True, "ops@example", at
        ),
        "GapAccepted": said.GapAccepted(partition, number, offsets, lineage, "retention came first", "ops@example", at),
        "PartitionMissing": said.PartitionMissing(partition, number, "cluster-1", broker, at),
        "PartitionDeleted": said.PartitionDeleted(partition, term, at),
    }
