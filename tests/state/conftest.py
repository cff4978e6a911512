"""Builders for facts of one partition. Ids are small numbers, callers pass positions, all else has a default."""

from __future__ import annotations

from typing import Any

import pytest

from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.facts import (
    DeleteReason,
    Fact,
    LeaderElected,
    LiveFact,
    LocalTrimIntended,
    LogStartAdvanced,
    OperatorOrder,
    OrderKind,
    PartitionDeleted,
    ReaderLease,
    SegmentCopyFinished,
    SegmentCopyStarted,
    SegmentDeleteFinished,
    SegmentDeleteStarted,
    UnknownFact,
)
from tierstate.state.ids import BrokerId, FactId, RemoteSegmentId, TopicId, TopicIdPartition
from tierstate.state.keys import key_of
from tierstate.state.meaning import meaning
from tierstate.state.object_keys import ObjectName
from tierstate.state.offsets import Offset, OffsetRange, Position, TimestampMs
from tierstate.state.partition_view import PartitionView
from tierstate.state.segment import AbortedRanges, Compression, CopyAttempt, RemoteSegment, Term

NOW = TimestampMs(1_700_000_000_000)
KNOWN = Lineage.of((0, 0))
"""The default lineage of leaders, and of facts about their log."""


def raw(number: int) -> bytes:
    return number.to_bytes(16, "big")


class Build:
    """Builds live facts: ``build.finished(7, 1, term, 0, 99)`` at position 7, that segment 1 has offsets 0..99."""

    partition = TopicIdPartition(TopicId.of(raw(77)), 3)

    def fact_id(self, number: int) -> FactId:
        return FactId.of(raw(number))

    def segment_id(self, number: int) -> RemoteSegmentId:
        return RemoteSegmentId.of(raw(number))

    def object_key(self, number: int, start: int = 0) -> str:
        """Return the segment's object key below a prefix with its number."""
        return f"{number}/{ObjectName('orders', self.partition, Offset(start), self.segment_id(number))}"

    def term(self, epoch: int, position: int, number: int | None = None) -> Term:
        """Return a term. By default its id follows from its position, as `leader` does."""
        return Term(LeaderEpoch(epoch), Position(position), self.fact_id(1000 + position if number is None else number))

    def live(self, position: int, fact: Fact) -> LiveFact:
        return LiveFact(key_of(fact), Position(position), fact)

    def leader(
        self, position: int, epoch: int, *, lineage: Lineage | None = None, number: int | None = None
    ) -> LiveFact:
        identity = self.fact_id(1000 + position if number is None else number)
        lineage = KNOWN if lineage is None else lineage
        return self.live(
            position,
            LeaderElected(
                self.partition, "orders", LeaderEpoch(epoch), identity, BrokerId(1), "b1:1", lineage, Offset(0), NOW
            ),
        )

    def attempt(self, number: int, term: Term, start: int = 0, end: int = 99) -> CopyAttempt:
        offsets, key = OffsetRange(Offset(start), Offset(end)), self.object_key(number, start)
        return CopyAttempt(self.partition, "orders", self.segment_id(number), offsets, key, term, BrokerId(1), NOW)

    def segment(
        self, number: int, term: Term, start: int = 0, end: int = 99, epochs: Lineage | None = None
    ) -> RemoteSegment:
        return RemoteSegment(
            partition=self.partition,
            topic="orders",
            segment_id=self.segment_id(number),
            object_key=self.object_key(number, start),
            offsets=OffsetRange(Offset(start), Offset(end)),
            last_record_offset=Offset(end),
            record_count=end - start + 1,
            leader_epochs=Lineage.of((0, start)) if epochs is None else epochs,
            max_timestamp=NOW,
            log_bytes=1000,
            log_object_bytes=100,
            indexes_object_bytes=10,
            manifest_bytes=1,
            log_sha256=b"\x01" * 32,
            log_crc32c=7,
            indexes_sha256=b"\x02" * 32,
            compression=Compression.ZSTD,
            encryption_key_id=None,
            transaction_index_empty=True,
            aborted=AbortedRanges.of(()),
            broker_id=BrokerId(1),
            term=term,
            copied_at=NOW,
        )

    def started(self, position: int, number: int, term: Term, start: int = 0, end: int = 99) -> LiveFact:
        return self.live(position, SegmentCopyStarted(self.attempt(number, term, start, end)))

    def finished(
        self, position: int, number: int, term: Term, start: int = 0, end: int = 99, epochs: Lineage | None = None
    ) -> LiveFact:
        return self.live(position, SegmentCopyFinished(self.segment(number, term, start, end, epochs)))

    def delete_started(self, position: int, number: int, term: Term, counter: int = 0) -> LiveFact:
        subject = self.attempt(number, term)
        return self.live(position, SegmentDeleteStarted(subject, term, counter, DeleteReason.ABANDONED, NOW))

    def delete_finished(self, position: int, number: int, term: Term, counter: int = 0) -> LiveFact:
        subject = self.segment(number, term)
        return self.live(position, SegmentDeleteFinished(subject, term, counter, NOW))

    def log_start(
        self, position: int, term: Term, offset: int, counter: int = 0, *, lineage: Lineage = KNOWN
    ) -> LiveFact:
        fact = LogStartAdvanced(self.partition, Offset(offset), term, counter, "retention-time", NOW, lineage)
        return self.live(position, fact)

    def trim(self, position: int, term: Term, offset: int, counter: int = 0) -> LiveFact:
        return self.live(position, LocalTrimIntended(self.partition, Offset(offset), term, counter, NOW))

    def deleted(self, position: int, term: Term) -> LiveFact:
        return self.live(position, PartitionDeleted(self.partition, term, NOW))

    def order(self, position: int, number: int, kind: OrderKind = OrderKind.PAUSE) -> LiveFact:
        fact = OperatorOrder(self.partition, self.fact_id(number), kind, None, False, "ops", NOW)
        return self.live(position, fact)

    def lease(self, position: int, number: int) -> LiveFact:
        offsets = OffsetRange(Offset(0), Offset(9))
        return self.live(position, ReaderLease(self.partition, self.fact_id(number), offsets, "spark", NOW))

    def unknown(self, position: int, tail: str) -> LiveFact:
        key = f"{self.partition.topic_id}/{self.partition.partition}/{tail}"
        return LiveFact(key, Position(position), UnknownFact(key, "unknown schema fingerprint 00"))

    def view(self, *facts: LiveFact) -> PartitionView:
        return meaning(self.partition, facts)

    def state_of(self, number: int, view: PartitionView) -> str | None:
        found: Any = view.segments.get(self.segment_id(number))
        return str(found.state) if found else None


@pytest.fixture(scope="session")
def build() -> Build:
    return Build()
