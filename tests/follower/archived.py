"""An in-memory tier-state partition, and the archive of it in an in-memory store."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tests.twins.manual_clock import ManualClock
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.broker.tier_topic import TierBatch, TierReader
from tierstate.follower.archive import archive
from tierstate.follower.archive_chain import archived_to, chain_of, read_archive, verify_archive
from tierstate.follower.archive_piece import Piece
from tierstate.follower.object_names import PieceName, TierPlace
from tierstate.follower.rocksdb_view import ViewIdentity
from tierstate.follower.view_identity import Shelf
from tierstate.state.ids import FactId, TopicId
from tierstate.state.offsets import Position, TimestampMs
from tierstate.state.view import Anchor, Entry
from tierstate.storage.memory import MemoryStore

R = TypeVar("R")
OWNER = TopicId.of(b"topic id of 16 b")
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def key_of(number: int) -> str:
    """Return a key that belongs to a partition."""
    return f"{OWNER}/0/lease/{FactId.of(number.to_bytes(16, 'big'))}"


def run(act: Generator[str, None, R]) -> R:
    """Run all steps, and return the result."""
    while True:
        try:
            next(act)
        except StopIteration as done:
            result: R = done.value
            return result


def crash(act: Generator[str, None, R], step: int) -> bool:
    """Stop before the ``step``-th step, counted from 0. Return False if the operation ended before that step."""
    for at, _ in enumerate(act):
        if at == step:
            act.close()
            return True
    return False


class CleanedTopic(MemoryTierTopic):
    """A topic after compaction: the records at the ``cleaned`` positions are gone. Partition 0 of 1."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(1, clock=clock)
        self.cleaned: set[int] = set()
        self.reads = 0

    def anchor_at(self, tier_partition: int, position: Position) -> Anchor | None:
        return None if position in self.cleaned else super().anchor_at(tier_partition, position)

    def reader(self, positions: Mapping[int, Position], epochs: Mapping[int, int] | None = None) -> TierReader:
        self.reads += 1
        return _CleanedReader(super().reader(positions, epochs), self.cleaned)


class _CleanedReader:
    def __init__(self, reader: TierReader, cleaned: set[int]) -> None:
        self._reader, self._cleaned = reader, cleaned

    def poll(self, timeout: float) -> list[TierBatch]:
        return [self._left(batch) for batch in self._reader.poll(timeout)]

    def _left(self, batch: TierBatch) -> TierBatch:
        rows = zip(batch.entries, batch.timestamps, strict=True)
        left = [(entry, time) for entry, time in rows if entry.position not in self._cleaned]
        return replace(batch, entries=tuple(e for e, _ in left), timestamps=tuple(t for _, t in left))

    def close(self) -> None:
        self._reader.close()


@dataclass
class Archived:
    """Tier-state partition 0 of 1, with its archive."""

    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.topic = CleanedTopic(self.clock)
        self.store = MemoryStore(self.clock)
        self.identity = ViewIdentity("cluster", self.topic.topic_id, 1)
        self.place = TierPlace(self.topic.topic_id, 0)

    @property
    def shelf(self) -> Shelf[MemoryStore]:
        return Shelf(self.store, self.identity, 0)

    def append(self, records: int, value: bytes = b"v") -> None:
        """Append facts that are never decoded, and a tombstone now and then."""
        first = self.topic.end(0)
        for number in range(first, first + records):
            self.topic.append(0, key_of(number), None if number % 7 == 3 else value + b"%d" % number)

    def archive(
        self, partial_after_ms: int = 0, known: int = 0, *, people_spoke: bool = False
    ) -> Generator[str, None, Position]:
        now, at = self.clock.now_ms(), Position(known)
        return archive(self.topic, self.shelf, now, partial_after_ms, at, people_spoke)

    def archived(self, *records: int) -> Archived:
        """Append and archive one piece for each of these counts of records. Return itself."""
        for count in records:
            self.append(count)
            run(self.archive())
        return self

    @property
    def to(self) -> Position:
        return archived_to(self.store, self.place)

    @property
    def names(self) -> list[PieceName]:
        return list(self.place.pieces(self.store))

    @property
    def ranges(self) -> list[tuple[int, int]]:
        return [(name.first, name.last) for name in self.names]

    def pieces(self) -> Iterator[Piece]:
        return read_archive(self.store, chain_of(self.store, self.place))

    def read(self) -> list[tuple[Entry, TimestampMs]]:
        return [(entry.entry, entry.timestamp) for piece in self.pieces() for entry in piece.entries]

    def said(self) -> list[tuple[Entry, TimestampMs]]:
        """Return all entries of the topic with their timestamps."""
        entries = []
        for batch in self.topic.reader({0: Position(0)}).poll(0):
            entries += list(zip(batch.entries, batch.timestamps, strict=True))
        return entries

    def problems(self) -> list[tuple[str, int | None, str]]:
        problems = verify_archive(self.store, self.place)
        return [(problem.object_key.rpartition("/")[2], problem.position, problem.problem) for problem in problems]

    def forked(self) -> Archived:
        """Return a world with the same past, which goes on independently."""
        cleaned, self.topic.cleaned = self.topic.cleaned, set()
        entries = self.said()
        self.topic.cleaned = set(cleaned)
        other = Archived(ManualClock(entries[0][1]))
        other.topic.cleaned = set(cleaned)
        for entry, time in entries:
            other.clock.advance((time - other.clock.now_ms()) / 1000)
            other.topic.append(0, entry.key, entry.value)
        other.clock.advance((self.clock.now_ms() - other.clock.now_ms()) / 1000)
        for info in self.store.list():
            other.store.put_if_absent(info.key, self.store.get(info.key))
        return other

    def overwrite(self, key: str, data: bytes) -> None:
        overwrite(self.store, key, data)


def overwrite(store: MemoryStore, key: str, data: bytes) -> None:
    """Replace the object of this name, which no tierstate program does."""
    store.delete(key)
    store.put_if_absent(key, data)


def flips(data: bytes) -> Iterator[bytes]:
    """Yield the data with one bit of one byte changed, for each byte."""
    for at in range(len(data)):
        yield data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]
