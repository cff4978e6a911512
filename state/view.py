"""The tier view: the tier-state topic as a map, and the seam through which everybody else sees it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from .apply import PartitionState
from .facts import Fact, LiveFact, UnknownFact
from .ids import TopicIdPartition
from .keys import partition_of_key
from .offsets import Position
from .partition_view import PartitionView

Decode = Callable[[str, bytes], Fact | UnknownFact]
"""Key and value bytes to the fact; never raises for bad bytes, answers UnknownFact (`schemas/codec.py`)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A record of the tier-state topic. ``value`` None is a tombstone."""

    key: str
    position: Position
    value: bytes | None


class TierView(Protocol):
    """What leaders and readers see of a follower. Thread-safe."""

    def partition(self, partition: TopicIdPartition) -> PartitionView:
        """The partition as the view has it now; an empty view when no fact names it."""
        ...

    def partitions(self) -> list[TopicIdPartition]:
        """Every partition with a live fact."""
        ...

    def facts(self, partition: TopicIdPartition) -> list[LiveFact]:
        """Its live set, in order of position."""
        ...

    def tier_partition(self, partition: TopicIdPartition) -> int:
        """The tier-state partition its facts are in."""
        ...

    def wait_applied(self, tier_partition: int, position: Position, timeout: float) -> None:
        """Until the record at ``position`` is applied. Raises ViewBehind after ``timeout`` seconds."""
        ...

    def require_fresh(self, tier_partition: int, max_age: float) -> None:
        """Return once an end offset captured at most ``max_age`` seconds ago is applied. Raises ViewBehind."""
        ...


class ViewStore(Protocol):
    """Where a follower keeps its live set and position; one writer. RocksDB in production, memory as the twin."""

    def apply(self, tier_partition: int, entries: Iterable[Entry], following: Position) -> None:
        """Apply records and the position after them in one step."""
        ...

    def position(self, tier_partition: int) -> Position:
        """The position of the next record to apply; 0 in an empty view."""
        ...

    def mark_as_of(self, tier_partition: int, now_ms: int) -> None:
        """A then-current end is applied, at this time."""
        ...

    def state(self, partition: TopicIdPartition) -> PartitionState:
        """The incremental state of one partition (empty when unknown)."""
        ...

    def partitions(self) -> list[TopicIdPartition]: ...

    def entries(self, tier_partition: int | None = None) -> Iterator[tuple[int, Entry]]:
        """The whole live set as bytes: (tier-state partition, entry)."""
        ...

    def close(self) -> None: ...


class MemoryView:
    """The twin of the RocksDB view store, and the oracle it is tested against."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._lock = threading.RLock()
        self._live: dict[int, dict[str, Entry]] = {}
        self._positions: dict[int, Position] = {}
        self._states: dict[TopicIdPartition, PartitionState] = {}

    def apply(self, tier_partition: int, entries: Iterable[Entry], following: Position) -> None:
        with self._lock:
            live = self._live.setdefault(tier_partition, {})
            for entry in entries:
                partition = partition_of_key(entry.key)
                state = self.state(partition) if partition else None
                if entry.value is None:
                    live.pop(entry.key, None)
                    if state:
                        state.erase(entry.key)
                else:
                    live[entry.key] = entry
                    if state:
                        state.insert(LiveFact(entry.key, entry.position, self._decode(entry.key, entry.value)))
            self._positions[tier_partition] = following

    def position(self, tier_partition: int) -> Position:
        with self._lock:
            return self._positions.get(tier_partition, Position(0))

    def mark_as_of(self, tier_partition: int, now_ms: int) -> None:
        """Memory does not outlive its process, so its age does not matter."""

    def state(self, partition: TopicIdPartition) -> PartitionState:
        with self._lock:
            return self._states.setdefault(partition, PartitionState(partition))

    def partitions(self) -> list[TopicIdPartition]:
        with self._lock:
            return sorted(partition for partition, state in self._states.items() if state.facts())

    def entries(self, tier_partition: int | None = None) -> Iterator[tuple[int, Entry]]:
        with self._lock:
            wanted = self._live if tier_partition is None else {tier_partition: self._live.get(tier_partition, {})}
            snapshot = [(number, entry) for number, live in sorted(wanted.items()) for entry in live.values()]
        yield from sorted(snapshot, key=lambda item: (item[0], item[1].position))

    def close(self) -> None:
        """Nothing to release."""
