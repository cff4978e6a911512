"""A shop's topics, as a console shows them: a view made of real facts, agents that answer, groups in both tiers.

Records are made when they are read, one per batch, so that a log of millions costs nothing.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kafka.record.default_records import DefaultRecordBatchBuilder

from tests.api.gateways import MemoryReader
from tests.api.json_server import json_server
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.broker.groups import GroupPosition, TopicGroups
from tierstate.broker.sasl import Login
from tierstate.fetch.piece import Fetched, LogicalBounds, LogicalTopic
from tierstate.follower.open import open_view
from tierstate.runtime.clock import SystemClock
from tierstate.schemas.codec import encode_fact
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.errors import OffsetOutOfRange, UnknownTopic
from tierstate.state.facts import (
    DeleteReason,
    Fact,
    LeaderElected,
    LocalTrimIntended,
    LogStartAdvanced,
    OperatorOrder,
    OrderKind,
    ReaderLease,
    SegmentCopyFinished,
    SegmentCopyStarted,
    SegmentDeleteStarted,
)
from tierstate.state.ids import BrokerId, FactId, RemoteSegmentId, TopicId, TopicIdPartition
from tierstate.state.keys import key_of
from tierstate.state.object_keys import ObjectKeys
from tierstate.state.offsets import Offset, OffsetRange, TimestampMs
from tierstate.state.partition_view import PartitionView
from tierstate.state.routing import Isolation, Tier
from tierstate.state.segment import AbortedRanges, Compression, CopyAttempt, RemoteSegment, Term

END = 1_767_225_600_000
"""The time of the newest record, everywhere."""
DAY = 86_400_000
BYTES = 1 << 30


@dataclass(frozen=True)
class Kept:
    """A topic. Per partition: ``segments`` of ``records`` each, from the ``expired``th on; the broker has what follows
    the first ``trimmed`` of them. ``days``: from its first record to its last. ``gap``: that segment of partition 1 is
    in no tier.
    """

    partitions: int = 1
    segments: int = 8
    records: int = 10_000
    expired: int = 0
    trimmed: int = 6
    days: int = 7
    gap: int | None = None
    paused: bool = False
    lease: bool = False
    lag: int = 0
    groups: dict[str, float] = field(default_factory=dict)
    """Group to its position, as a fraction of the whole log."""

    def end(self, partition: int) -> int:
        return int((self.segments + 0.6) * self.records * (1 - 0.07 * (partition % 5)))

    def base(self, partition: int, segment: int) -> int:
        return segment * self.end(partition) * 10 // int(10 * (self.segments + 0.6))


TOPICS = {
    "payments": Kept(partitions=4, paused=True, trimmed=3, lag=3, days=30, groups={"ledger": 1.0, "fraud": 0.93}),
    "orders": Kept(
        partitions=6,
        segments=10,
        trimmed=7,
        expired=1,
        days=14,
        lease=True,
        groups={"checkout": 1.0, "audit": 0.34, "billing": 0.81, "reports": 0.36},
    ),
    "shipments": Kept(partitions=3, gap=3, days=21, groups={"tracking": 0.99}),
    "clickstream": Kept(partitions=5000, segments=2, records=900_000, trimmed=1, days=3),
    "inventory": Kept(partitions=2, segments=4, trimmed=3, days=60, groups={"search": 1.0}),
    "returns": Kept(segments=3, trimmed=2, days=90),
}


class Shop(MemoryReader):
    """Reads, and answers which groups stand where (as `Callers`). ``address``: of the agent of all topics."""

    def __init__(self, topics: dict[str, Kept], address: str = "") -> None:
        super().__init__()
        self.kept, self._address = topics, address
        self._topic = MemoryTierTopic()
        for name, kept in topics.items():
            for number in range(min(kept.partitions, 64)):
                for fact in self._facts(name, kept, number):
                    self._topic.append(0, key_of(fact), encode_fact(fact))
        self._view = open_view(self._topic, "cluster", SystemClock())
        self._view.require_fresh(0, 0)

    def topics(self) -> list[str]:
        return list(self.kept)

    def topic(self, name: str) -> LogicalTopic:
        if name not in self.kept:
            raise UnknownTopic("no such topic", topic=name)
        return LogicalTopic(name, self._id(name), self.kept[name].partitions)

    def view(self, topic: str, partition: int) -> PartitionView:
        return self._view.partition(TopicIdPartition(self.topic(topic).topic_id, partition))

    def bounds(self, topic: str, partition: int) -> LogicalBounds:
        kept = self.kept[topic]
        end = Offset(kept.end(partition))
        start, local = (Offset(kept.base(partition, number)) for number in (kept.expired, kept.trimmed))
        return LogicalBounds(start, local, None, end, end)

    def fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int, isolation: Isolation, tier: Tier
    ) -> Fetched:
        bounds = self.bounds(topic, partition)
        start, end = bounds.start(topic, partition), bounds.high_watermark
        if not start <= offset <= end:
            raise OffsetOutOfRange("offset out of range", valid_start=start, valid_end=end, offset=offset)
        served = Tier.LOCAL if offset >= bounds.local_start else Tier.REMOTE
        limit = end if served is Tier.LOCAL else bounds.local_start
        following = min(limit, offset + (1 if max_bytes == 1 else 100))
        data = b"".join(self._batch(topic, partition, at) for at in range(offset, following))
        return Fetched(data, served, (), Offset(offset), Offset(following), limit, bounds)

    def groups(self, who: Login | str | None, topic: str, partitions: Sequence[int]) -> TopicGroups:
        kept = self.kept[topic]
        return TopicGroups(
            tuple(
                GroupPosition(name, number, Offset(int(far * kept.end(number) * (1 - 0.02 * (number % 3) * (far < 1)))))
                for name, far in kept.groups.items()
                for number in partitions[:64]
            )
        )

    def time(self, topic: str, partition: int, offset: int) -> int:
        """Return the time of a record: records are evenly spread."""
        kept = self.kept[topic]
        return END - (kept.end(partition) - 1 - offset) * kept.days * DAY // kept.end(partition)

    def _batch(self, topic: str, partition: int, offset: int) -> bytes:
        builder: Any = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 16)
        value = {"order": 480_000 + offset, "item": f"item-{offset % 97}", "price": round(offset * 7 % 9000 / 100, 2)}
        key = b"customer-%d" % (offset * 31 % 4000)
        builder.append(
            0, self.time(topic, partition, offset), key, json.dumps(value).encode(), [("source", b"checkout")]
        )
        data = bytearray(builder.build())
        struct.pack_into(">q", data, 0, offset)
        return bytes(data)

    def _id(self, name: str) -> TopicId:
        return TopicId.of(name.encode().ljust(16, b"-")[:16])

    def _facts(self, name: str, kept: Kept, number: int) -> Iterator[Fact]:
        place, lineage = TopicIdPartition(self._id(name), number), Lineage.of((0, 0))
        broker = BrokerId(1 + number % 3)
        elected = TimestampMs(self.time(name, number, 0) + number * 60_000)
        term = Term(LeaderEpoch(0), self._topic.end(0), FactId.of(number.to_bytes(16, "big")))
        yield LeaderElected(place, name, term.epoch, term.id, broker, self._address, lineage, Offset(0), elected)
        for nth in range(max(0, kept.expired - 1), kept.segments - kept.lag):
            if nth == kept.gap and number == 1:
                continue
            segment = self._segment(name, kept, place, nth, term, broker)
            yield SegmentCopyStarted(attempt_of(segment))
            yield SegmentCopyFinished(segment)
        if kept.expired:
            segment = self._segment(name, kept, place, kept.expired - 1, term, broker)
            at = TimestampMs(END - DAY // 3 + number * 90_000)
            start = Offset(segment.offsets.end + 1)
            yield LogStartAdvanced(place, start, term, 1, DeleteReason.RETENTION_TIME.value, at, lineage)
            yield SegmentDeleteStarted(segment, term, 2, DeleteReason.RETENTION_TIME, TimestampMs(at + 1000))
        else:
            yield LogStartAdvanced(place, Offset(0), term, 1, "first-term", elected, lineage)
        trimmed = Offset(kept.base(number, kept.trimmed))
        yield LocalTrimIntended(place, trimmed, term, 3, TimestampMs(END - DAY // 5 + number * 70_000))
        if kept.paused:
            at, who = TimestampMs(END - 2 * DAY), "ann@desk"
            yield OperatorOrder(place, FactId.of(b"order of the day"), OrderKind.PAUSE, None, False, who, at, Lineage())
        if kept.lease and number < 2:
            offsets = OffsetRange(Offset(kept.base(number, 2)), Offset(kept.base(number, 6) - 1))
            until = TimestampMs(END + 20 * 365 * DAY)
            yield ReaderLease(place, FactId.of(b"lease of a query"), offsets, "spark nightly-report", until)

    def _segment(
        self, name: str, kept: Kept, place: TopicIdPartition, nth: int, term: Term, broker: BrokerId
    ) -> RemoteSegment:
        base, following = kept.base(place.partition, nth), kept.base(place.partition, nth + 1)
        segment_id = RemoteSegmentId.of(place.partition.to_bytes(8, "big") + nth.to_bytes(8, "big"))
        newest = self.time(name, place.partition, following - 1)
        size = BYTES * (7 + nth % 3) // 8
        return RemoteSegment(
            partition=place,
            topic=name,
            segment_id=segment_id,
            object_key=ObjectKeys().base_key(name, place.topic_id, place.partition, base, segment_id),
            offsets=OffsetRange(Offset(base), Offset(following - 1)),
            last_record_offset=Offset(following - 1),
            record_count=following - base,
            leader_epochs=Lineage.of((0, base)),
            max_timestamp=TimestampMs(newest),
            log_bytes=size,
            log_object_bytes=size // 3,
            indexes_object_bytes=40_000,
            manifest_bytes=2_000,
            log_sha256=bytes(32),
            log_crc32c=0,
            indexes_sha256=bytes(32),
            compression=Compression.ZSTD,
            encryption_key_id=None,
            transaction_index_empty=True,
            aborted=AbortedRanges.of(()),
            broker_id=broker,
            term=term,
            copied_at=TimestampMs(newest + 600_000),
        )

    def statuses(self) -> Iterator[dict[str, Any]]:
        """Yield the status of all partitions as their agent reports it."""
        for name, kept in self.kept.items():
            for number in range(min(kept.partitions, 64)):
                retention = {"retention_ms": kept.days * DAY, "retention_bytes": -1}
                yield {
                    "topic": name,
                    "partition": number,
                    "leads": True,
                    "local_log_start_offset": kept.base(number, kept.trimmed),
                    "local_log_bytes": BYTES * (kept.segments - kept.trimmed) + BYTES // 2,
                    "copy_lag_segments": kept.lag,
                    "copy_lag_bytes": kept.lag * BYTES,
                    "copy_lag_s": kept.lag * 3600.0 or None,
                    "not_copied": "order: pause stands" if kept.paused else None,
                    "not_trimmed": "local.retention.ms keeps the oldest segment for 3 hours more",
                    "not_expired": "retention.ms keeps the oldest segment for a day more",
                    "consecutive_failures": 0,
                    **retention,
                    "local_retention_ms": DAY,
                    "local_retention_bytes": -1,
                }


def attempt_of(segment: RemoteSegment) -> CopyAttempt:
    """Return the copy attempt that became this segment."""
    return CopyAttempt(
        segment.partition,
        segment.topic,
        segment.segment_id,
        segment.offsets,
        segment.object_key,
        segment.term,
        segment.broker_id,
        TimestampMs(segment.copied_at - 60_000),
    )


@contextmanager
def shop(topics: dict[str, Kept] = TOPICS) -> Iterator[Shop]:
    """Yield a shop with an agent that answers until the block ends."""
    answers: dict[str, object] = {}
    with json_server(answers) as server:
        reader = Shop(topics, server.address)
        statuses = list(reader.statuses())
        answers["/v1/status"] = {"partitions": statuses}
        answers.update({f"/v1/status/{status['topic']}/{status['partition']}": status for status in statuses})
        yield reader
