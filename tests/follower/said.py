"""Facts to put into an in-memory tier-state topic."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.follower.rocksdb_view import ViewIdentity
from tierstate.schemas.codec import encode_fact
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.facts import Fact, LeaderElected, LogStartAdvanced
from tierstate.state.ids import BrokerId, FactId, RemoteSegmentId, TopicId, TopicIdPartition
from tierstate.state.keys import key_of, partition_of_key, tier_partition_of
from tierstate.state.object_keys import ObjectName
from tierstate.state.offsets import Offset, OffsetRange, Position, TimestampMs
from tierstate.state.segment import AbortedRanges, Compression, CopyAttempt, RemoteSegment, Term

PARTITIONS = 4


def partition(number: int) -> TopicIdPartition:
    return TopicIdPartition(TopicId.of(b"topic id of 16 b"), number)


def elected(number: int, epoch: int, seed: int, *before: tuple[int, int]) -> LeaderElected:
    """``before``: the (epoch, start offset) pairs from which its lineage goes on."""
    return LeaderElected(
        partition(number),
        "orders",
        LeaderEpoch(epoch),
        FactId.of(seed.to_bytes(16, "big")),
        BrokerId(1),
        "127.0.0.1:1",
        Lineage.of(*before, (epoch, 1000 if before else 0)),
        Offset(0),
        TimestampMs(1),
    )


def log_start(number: int, offset: int, leader: LeaderElected, position: int, counter: int = 1) -> LogStartAdvanced:
    term = Term(leader.epoch, Position(position), leader.id)
    return LogStartAdvanced(partition(number), Offset(offset), term, counter, "test", TimestampMs(2))


def attempt(number: int, base: int, leader: LeaderElected, position: int, *, seed: int = 0) -> CopyAttempt:
    """Return an attempt to copy a hundred offsets."""
    segment_id = RemoteSegmentId.of(((base + 1) * 1000 + 10 * number + seed).to_bytes(16, "big"))
    return CopyAttempt(
        partition(number),
        "orders",
        segment_id,
        OffsetRange(Offset(base), Offset(base + 99)),
        str(ObjectName("orders", partition(number), Offset(base), segment_id)),
        Term(leader.epoch, Position(position), leader.id),
        BrokerId(1),
        TimestampMs(3),
    )


def finished(copy: CopyAttempt, size: int = 1000) -> RemoteSegment:
    """Return a segment of a hundred records, one per millisecond, the first at the time that equals its offset."""
    return RemoteSegment(
        partition=copy.partition,
        topic=copy.topic,
        segment_id=copy.segment_id,
        object_key=copy.object_key,
        offsets=copy.offsets,
        last_record_offset=copy.offsets.end,
        record_count=100,
        leader_epochs=Lineage.of((copy.term.epoch, copy.offsets.start)),
        max_timestamp=TimestampMs(copy.offsets.end),
        log_bytes=size,
        log_object_bytes=size,
        indexes_object_bytes=10,
        manifest_bytes=1,
        log_sha256=bytes(32),
        log_crc32c=0,
        indexes_sha256=bytes(32),
        compression=Compression.NONE,
        encryption_key_id=None,
        transaction_index_empty=True,
        aborted=AbortedRanges.of(()),
        broker_id=copy.broker_id,
        term=copy.term,
        copied_at=TimestampMs(4),
    )


@dataclass
class Topic:
    """A topic that puts each fact into the partition to which its key maps."""

    topic: MemoryTierTopic = field(default_factory=lambda: MemoryTierTopic(PARTITIONS))

    def say(self, fact: Fact) -> Position:
        key = key_of(fact)
        return self.topic.append(self.number(key), key, encode_fact(fact))

    def erase(self, fact: Fact) -> Position:
        return self.topic.append(self.number(key_of(fact)), key_of(fact), None)

    def number(self, key: str) -> int:
        user = partition_of_key(key)
        return 0 if user is None else tier_partition_of(user, PARTITIONS)


def identity(topic_id: str = "AAAAAAAAAAAAAAAAAAAAAg") -> ViewIdentity:
    return ViewIdentity("cluster", topic_id, PARTITIONS)
