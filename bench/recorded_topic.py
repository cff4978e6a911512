"""A tier-state topic of generated facts in files, and its reader: batches as Kafka's reader hands them out, no Kafka.

A file per tier-state partition: key length and value length (2 x uint32), key, value, one record after the other.
"""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tierstate.broker.tier_reader import KafkaReader, TierBatch
from tierstate.broker.tier_topic import AppendTime
from tierstate.schemas.codec import encode_fact
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.facts import Fact, LeaderElected, SegmentCopyFinished, SegmentCopyStarted
from tierstate.state.ids import BrokerId, FactId, RemoteSegmentId, TopicId, TopicIdPartition
from tierstate.state.keys import key_of, tier_partition_of
from tierstate.state.offsets import Offset, OffsetRange, Position, TimestampMs
from tierstate.state.segment import AbortedRanges, Compression, CopyAttempt, RemoteSegment, Term
from tierstate.state.view import Anchor, Entry

TIER_PARTITIONS = 50
A_PARTITION = 1_000
"""Segments of a user partition."""
WRITERS = 2
NOW_MS = TimestampMs(1_767_225_604_250)
HEAD = struct.Struct(">II")


def facts_of(number: int, segments: int, first: Position) -> Iterator[Fact]:
    """Yield the facts of one user partition: its term, then both facts of each segment's copy, from ``first`` on."""
    chance = random.Random(number)
    partition, name = partition_of(number), f"orders-{number // 10}"
    lineage = Lineage.of((0, 0), (3, 0))
    term = Term(LeaderEpoch(3), first, FactId.of(chance.randbytes(16)))
    broker = BrokerId(1)
    yield LeaderElected(
        partition, name, term.epoch, term.id, broker, "10.0.0.1:9404", lineage, Offset(0), TimestampMs(NOW_MS)
    )
    start = 0
    for nth in range(segments):
        count = chance.randint(500_000, 1_500_000)
        offsets = OffsetRange(Offset(start), Offset(start + count - 1))
        segment_id = RemoteSegmentId.of(chance.randbytes(16))
        key = f"{name}-{partition.topic_id}/{partition.partition}/{start:020d}-{segment_id}"
        at = NOW_MS + nth * 60_000
        yield SegmentCopyStarted(CopyAttempt(partition, name, segment_id, offsets, key, term, broker, TimestampMs(at)))
        yield SegmentCopyFinished(
            RemoteSegment(
                partition=partition,
                topic=name,
                segment_id=segment_id,
                object_key=key,
                offsets=offsets,
                last_record_offset=offsets.end,
                record_count=count,
                leader_epochs=Lineage.of((3, start)),
                max_timestamp=TimestampMs(at - 5_000),
                log_bytes=1_000_000_000 + chance.randrange(10**7),
                log_object_bytes=300_000_000 + chance.randrange(10**7),
                indexes_object_bytes=400_000 + chance.randrange(1_000),
                manifest_bytes=2_900,
                log_sha256=chance.randbytes(32),
                log_crc32c=chance.randrange(2**32),
                indexes_sha256=chance.randbytes(32),
                compression=Compression.NONE,
                encryption_key_id=None,
                transaction_index_empty=True,
                aborted=AbortedRanges.of(()),
                broker_id=broker,
                term=term,
                copied_at=TimestampMs(at + 8_000),
            )
        )
        start += count


def partition_of(number: int) -> TopicIdPartition:
    """Return the partition for a number: ten partitions a topic."""
    return TopicIdPartition(TopicId.of(random.Random(-1 - number // 10).randbytes(16)), number % 10)


def generate(folder: Path, segments: int) -> None:
    """Write facts of this many segments into ``folder``, by two processes."""
    fresh = get_context("spawn")  # a fork of a process that has Kafka clients dies when it collects them
    with ProcessPoolExecutor(WRITERS, mp_context=fresh) as pool:
        counts = list(pool.map(_write, [folder] * WRITERS, [segments] * WRITERS, range(WRITERS)))
    (folder / "counts.json").write_text(json.dumps({k: v for each in counts for k, v in each.items()}))


def _write(folder: Path, segments: int, writer: int) -> dict[int, int]:
    """Write the tier-state partitions whose number leaves ``writer``; return how many records each has."""
    counts: dict[int, int] = {}
    for number in range(-(-segments // A_PARTITION)):
        tier_partition = tier_partition_of(partition_of(number), TIER_PARTITIONS)
        if tier_partition % WRITERS != writer:
            continue
        first = counts.get(tier_partition, 0)
        here = min(A_PARTITION, segments - number * A_PARTITION)
        with (folder / f"{tier_partition}.records").open("ab", 1 << 20) as file:
            for fact in facts_of(number, here, Position(first)):
                key, value = key_of(fact).encode(), encode_fact(fact)
                file.write(HEAD.pack(len(key), len(value)) + key + value)
        counts[tier_partition] = first + 1 + 2 * here
    return counts


class RecordedTopic:
    """A `TierTopic` for followers, checkpoints and the archive, without appends."""

    topic_id = "AAAAAAAAAAAAAAAAAAAAAg"
    mapped_partitions = TIER_PARTITIONS

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        counts = json.loads((folder / "counts.json").read_text())
        self.counts: dict[int, int] = {int(number): count for number, count in counts.items()}

    def halves(self) -> tuple[list[int], list[int]]:
        """Return its tier-state partitions in two lists of about as many records."""
        halves: tuple[list[int], list[int]] = ([], [])
        sizes = [0, 0]
        for number, count in sorted(self.counts.items(), key=lambda each: -each[1]):
            smaller = sizes.index(min(sizes))
            halves[smaller].append(number)
            sizes[smaller] += count
        return halves

    def raw(self, tier_partition: int) -> Iterator[tuple[bytes, bytes]]:
        with (self._folder / f"{tier_partition}.records").open("rb", 1 << 20) as file:
            while head := file.read(HEAD.size):
                key, value = HEAD.unpack(head)
                yield file.read(key), file.read(value)

    @property
    def size(self) -> int:
        """Return the bytes of keys and values."""
        files = self._folder.glob("*.records")
        return sum(os.path.getsize(file) for file in files) - HEAD.size * sum(self.counts.values())

    def append(self, tier_partition: int, key: str, value: bytes | None) -> Position:
        raise AssertionError("a recorded topic does not grow")

    @property
    def append_times(self) -> Mapping[int, AppendTime]:
        return {}

    def end(self, tier_partition: int) -> Position:
        return Position(self.counts.get(tier_partition, 0))

    def ends(self, tier_partitions: Collection[int]) -> dict[int, Position]:
        return {number: self.end(number) for number in tier_partitions}

    def starts(self, tier_partitions: Collection[int]) -> dict[int, Position]:
        return dict.fromkeys(tier_partitions, Position(0))

    def position_at(self, tier_partition: int, timestamp_ms: TimestampMs) -> Position:
        return self.end(tier_partition)

    def anchor_at(self, tier_partition: int, position: Position) -> Anchor | None:
        return None

    def reader(self, positions: Mapping[int, Position], epochs: Mapping[int, int] | None = None) -> _Reader:
        return _Reader(self, positions)

    def problems(self) -> list[str]:
        return []

    def current_topic_id(self) -> str:
        return self.topic_id

    def close(self) -> None:
        """Do nothing: nothing is open."""


class _Reader:
    def __init__(self, topic: RecordedTopic, positions: Mapping[int, Position]) -> None:
        self._left = [number for number, position in positions.items() if position < topic.end(number)]
        self._positions, self._topic = positions, topic
        self._rows: Iterator[tuple[int, tuple[bytes, bytes]]] = iter(())

    def poll(self, timeout: float) -> list[TierBatch]:
        """Return the next batch of the first partition that is not read to its end."""
        while self._left:
            number, entries = self._left[0], list[Entry]()
            for position, (key, value) in self._rows:
                if position >= self._positions[number]:
                    entries.append(Entry(key.decode(), Position(position), value))
                    if len(entries) == KafkaReader.MAX_RECORDS:
                        break
            if entries:
                following = Position(entries[-1].position + 1)
                if following == self._topic.end(number):
                    self._next()
                return [TierBatch(number, tuple(entries), following, (NOW_MS,) * len(entries), 3)]
            self._rows = enumerate(self._topic.raw(number))
        return []

    def _next(self) -> None:
        del self._left[0]
        self._rows = iter(())

    def close(self) -> None:
        self._left.clear()
