"""The tier view: the tier-state topic as a map, and the protocol through which other packages read it.

Its store is RocksDB (`follower/rocksdb_view.py`), or memory (`MemoryView`), which is rebuilt after a restart.
"""

from __future__ import annotations

import hashlib
import struct
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Protocol, Self

from .apply import PartitionState
from .facts import Fact, LiveFact, SegmentCopyStarted, UnknownFact
from .ids import RECOVERER, TopicIdPartition
from .keys import Places, partition_prefix
from .offsets import Position, TimestampMs
from .partition_view import PartitionView

_ANCHORED = struct.Struct(">qqIi")


@dataclass(frozen=True, slots=True)
class Anchor:
    """The digest of the last known record of a topic, which shows whether the topic still has the same history.

    A broker that is restored from a backup assigns positions and leader epochs a second time. But it never writes the
    same record at a position a second time: the append times alone differ. ``sha256`` (hex) covers position, append
    time, key and value.
    """

    position: Position
    sha256: str

    @classmethod
    def of(cls, position: Position, timestamp: TimestampMs, key: str, value: bytes | None) -> Self:
        """Return the anchor of a record. A ``value`` of None is a tombstone, which differs from an empty value."""
        name = key.encode()
        fixed = _ANCHORED.pack(position, timestamp, len(name), -1 if value is None else len(value))
        return cls(position, hashlib.sha256(fixed + name + (value or b"")).hexdigest())


Decode = Callable[[str, bytes], Fact | UnknownFact]
"""Decodes key and value bytes to a fact. Never raises for bad bytes: it returns UnknownFact (`schemas/codec.py`)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A record of the tier-state topic. If ``value`` is None, the record is a tombstone."""

    key: str
    position: Position
    value: bytes | None


READY_AGE_S = 6 * 3600.0
"""In seconds: a quarter of 24 hours, the minimum of ``min.compaction.lag.ms``.

After a cleaner has passed position N, a view at N is a state that never existed. Records younger than the compaction
lag are never cleaned. So a view is at an uncleaned position if it applied an end captured at most this long ago.
"""


@dataclass(frozen=True, slots=True)
class SecondValue:
    """A second, different value was appended under a key that is written only once: an integrity alarm."""

    key: str
    first_position: Position
    second_position: Position
    first: bytes
    second: bytes


def is_second_value(later: Fact | UnknownFact) -> bool:
    """Return whether a value that replaces a different value is an integrity alarm.

    Only a recovery writes a key twice: a copy-started with the broker id RECOVERER, if the copy-finished was lost.
    """
    return not (isinstance(later, SegmentCopyStarted) and later.attempt.broker_id == RECOVERER)


class TierView(Protocol):
    """The part of a follower that leaders and readers use. Thread-safe."""

    def partition(self, partition: TopicIdPartition) -> PartitionView:
        """Return the current view of the partition; it is empty if no fact names the partition.

        Every foreign key (`keys.py`) in its tier-state partition degrades the view. Raises ViewBehind for a partition
        that this view does not keep or does not keep yet.
        """

    def partitions(self) -> list[TopicIdPartition]:
        """Return every partition with a live fact."""

    def facts(self, partition: TopicIdPartition) -> list[LiveFact]:
        """Return the partition's live set, in order of position. Raises ViewBehind as `partition` does."""

    def tier_partition(self, partition: TopicIdPartition) -> int:
        """Return the tier-state partition that has the facts of this partition."""

    def second_values(self, partition: TopicIdPartition) -> list[SecondValue]:
        """Return the second values that were found and not forgotten yet, in order of key."""

    def forget_second_value(self, partition: TopicIdPartition, key: str) -> None:
        """Forget a second value, because its `IntegrityHold` is in the view."""

    def wait_applied(self, tier_partition: int, position: Position, timeout: float) -> None:
        """Wait until the record at ``position`` is applied. Raises ViewBehind after ``timeout`` seconds."""

    def require_fresh(self, tier_partition: int, max_age: float) -> None:
        """Return once an end offset captured at most ``max_age`` seconds ago is applied. Raises ViewBehind."""

    def require_ready(self, tier_partition: int) -> None:
        """Return once an end offset captured at most ``READY_AGE_S`` ago is applied. Raises ViewBehind."""

    def age_s(self, tier_partition: int) -> float | None:
        """Return the seconds since the applied end offset was captured; None if none was applied yet."""


class ViewStore(Protocol):
    """The store of a follower's live set and position. It has one writer. It is in RocksDB or in memory.

    Foreign keys (`keys.py`) are stored like other entries, so that live-set digests agree, but belong to no partition.
    """

    def apply(
        self,
        tier_partition: int,
        entries: Iterable[Entry],
        following: Position,
        epoch: int = -1,
        dropped: Collection[TopicIdPartition] = (),
        anchor: Anchor | None = None,
    ) -> list[SecondValue]:
        """Apply records, and store the position after them (``following``) and its leader epoch, in one atomic step.

        ``dropped``: partitions with records that were left out. ``anchor``: that of the last record below the position,
        left out or not; None keeps the stored anchor. Returns the second values that these records added.
        """

    def anchor(self, tier_partition: int) -> Anchor | None:
        """Return the anchor of the last record below the position, or None if it is unknown."""

    def position(self, tier_partition: int) -> Position:
        """Return the position of the next record to apply; 0 in an empty view."""

    def epoch(self, tier_partition: int) -> int:
        """Return the leader epoch of the last applied record; -1 if unknown."""

    def mark_as_of(self, tier_partition: int, now_ms: int) -> None:
        """Record that all records up to the end of the partition at ``now_ms`` are applied."""

    def as_of(self, tier_partition: int) -> int:
        """Return the last time (ms) at which the view is known to have been at the end; 0 for never."""

    def state(self, partition: TopicIdPartition) -> PartitionState:
        """Return the incremental state of one partition (empty if the partition is unknown)."""

    def partitions(self) -> list[TopicIdPartition]: ...

    def entries(self, tier_partition: int | None = None) -> Iterator[tuple[int, Entry]]:
        """Return pairs of tier-state partition and entry: the live set as bytes; of all partitions by default."""

    def foreign(self, tier_partition: int) -> tuple[str, ...]:
        """Return one sentence, with the position, for each live foreign key."""

    def second_values(self, partition: TopicIdPartition) -> list[SecondValue]:
        """Return the first pair of different values of each key, in order of key, until it is forgotten."""

    def forget_second_value(self, partition: TopicIdPartition, key: str) -> None: ...

    def dropped(self, tier_partition: int) -> AbstractSet[TopicIdPartition]:
        """Return the dropped partitions: records of them were left out, and the view has none of their facts."""

    def drop(self, tier_partition: int, partition: TopicIdPartition) -> None:
        """Forget all facts of a partition in one atomic step. From then on it is a dropped partition."""

    def adopt(self, tier_partition: int, partitions: Collection[TopicIdPartition], source: ViewStore) -> None:
        """Restore dropped partitions, in one step, from a store that has all their records up to this position."""

    def close(self) -> None: ...


BEGINNING = Position(0)


@dataclass
class _TierPartition:
    live: dict[str, Entry] = field(default_factory=dict)
    foreign: dict[str, Position] = field(default_factory=dict)
    dropped: frozenset[TopicIdPartition] = frozenset()
    position: Position = BEGINNING
    epoch: int = -1
    as_of: int = 0
    anchor: Anchor | None = None


class MemoryView:
    """The in-memory view store, and the reference for the tests of the RocksDB view store.

    ``partitions``: the partition count that maps keys. If it is None, a key is accepted in any partition.
    """

    def __init__(self, decode: Decode, partitions: int | None = None) -> None:
        self._decode, self._places = decode, Places(partitions)
        self._lock = threading.RLock()
        self._tiers: dict[int, _TierPartition] = {}
        self._states: dict[TopicIdPartition, PartitionState] = {}
        self._seconds: dict[str, SecondValue] = {}

    def _tier(self, tier_partition: int) -> _TierPartition:
        return self._tiers.setdefault(tier_partition, _TierPartition())

    def apply(
        self,
        tier_partition: int,
        entries: Iterable[Entry],
        following: Position,
        epoch: int = -1,
        dropped: Collection[TopicIdPartition] = (),
        anchor: Anchor | None = None,
    ) -> list[SecondValue]:
        with self._lock:
            tier = self._tier(tier_partition)
            seconds = [second for entry in entries if (second := self._land(tier_partition, tier, entry))]
            tier.position, tier.epoch, tier.anchor = following, epoch, anchor or tier.anchor
            tier.dropped |= frozenset(dropped)
            return seconds

    def _land(self, tier_partition: int, tier: _TierPartition, entry: Entry) -> SecondValue | None:
        place = self._places.of(tier_partition, entry.key)
        before = tier.live.pop(entry.key, None)
        if entry.value is None:
            tier.foreign.pop(entry.key, None)
            if place.partition in self._states:
                self._states[place.partition].erase(entry.key)
            return None
        tier.live[entry.key] = entry
        if place.foreign:
            tier.foreign[entry.key] = entry.position
            return None
        if place.partition:
            state = self._states.setdefault(place.partition, PartitionState(place.partition))
            state.insert(LiveFact(entry.key, entry.position, self._decode(entry.key, entry.value)))
        if before is None or before.value == entry.value or entry.key in self._seconds:
            return None
        if not is_second_value(self._decode(entry.key, entry.value)):
            return None
        second = SecondValue(entry.key, before.position, entry.position, before.value or b"", entry.value)
        self._seconds[entry.key] = second
        return second

    def position(self, tier_partition: int) -> Position:
        return self._tier(tier_partition).position

    def epoch(self, tier_partition: int) -> int:
        return self._tier(tier_partition).epoch

    def anchor(self, tier_partition: int) -> Anchor | None:
        return self._tier(tier_partition).anchor

    def mark_as_of(self, tier_partition: int, now_ms: int) -> None:
        self._tier(tier_partition).as_of = now_ms

    def as_of(self, tier_partition: int) -> int:
        return self._tier(tier_partition).as_of

    def state(self, partition: TopicIdPartition) -> PartitionState:
        with self._lock:
            return self._states.get(partition) or PartitionState(partition)

    def partitions(self) -> list[TopicIdPartition]:
        with self._lock:
            return sorted(partition for partition, state in self._states.items() if state.fact_count)

    def entries(self, tier_partition: int | None = None) -> Iterator[tuple[int, Entry]]:
        with self._lock:
            numbers = sorted(self._tiers) if tier_partition is None else [tier_partition]
            snapshot = [(number, list(self._tier(number).live.values())) for number in numbers]
        for number, entries in snapshot:
            for entry in sorted(entries, key=lambda each: each.position):
                yield number, entry

    def foreign(self, tier_partition: int) -> tuple[str, ...]:
        with self._lock:
            standing = sorted(self._tier(tier_partition).foreign.items())
        return tuple(self._places.sentence(tier_partition, key, position) for key, position in standing)

    def second_values(self, partition: TopicIdPartition) -> list[SecondValue]:
        prefix = partition_prefix(partition)
        with self._lock:
            return [second for key, second in sorted(self._seconds.items()) if key.startswith(prefix)]

    def forget_second_value(self, partition: TopicIdPartition, key: str) -> None:
        with self._lock:
            self._seconds.pop(key, None)

    def dropped(self, tier_partition: int) -> AbstractSet[TopicIdPartition]:
        return self._tier(tier_partition).dropped

    def drop(self, tier_partition: int, partition: TopicIdPartition) -> None:
        prefix = partition_prefix(partition)
        with self._lock:
            tier = self._tier(tier_partition)
            for key in [key for key in tier.live if key.startswith(prefix) and key not in tier.foreign]:
                del tier.live[key]
            for key in [key for key in self._seconds if key.startswith(prefix)]:
                del self._seconds[key]
            self._states.pop(partition, None)
            tier.dropped |= {partition}

    def adopt(self, tier_partition: int, partitions: Collection[TopicIdPartition], source: ViewStore) -> None:
        with self._lock:
            tier = self._tier(tier_partition)
            for _, entry in source.entries(tier_partition):
                if self._places.of(tier_partition, entry.key).partition in partitions:
                    self._land(tier_partition, tier, entry)
            for partition in partitions:
                self._seconds.update((second.key, second) for second in source.second_values(partition))
            tier.dropped -= frozenset(partitions)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
