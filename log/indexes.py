"""Read, build and check a segment's index files: ``.index`` and ``.timeindex`` (Kafka's `OffsetIndex`, `TimeIndex`).

An entry of the offset index has a relative offset (int32) and a byte position (int32). It names the *last* offset of an
append and the byte where that append begins; an append may hold several batches. An entry of the time index has the
highest timestamp so far (int64, ms) and the relative offset of that timestamp (int32). All entries of a file have the
same size and increase; Kafka may preallocate zeros after them.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..state.errors import CorruptData
from ..state.offsets import Offset, TimestampMs
from .batch import BatchHeader

_OFFSET_ENTRY, _TIME_ENTRY = struct.Struct(">ii"), struct.Struct(">qi")
TIME_ENTRY_BYTES = _TIME_ENTRY.size
INTERVAL_BYTES = 4096
"""Kafka's ``index.interval.bytes``: an append gets an entry if it begins more than this after the last indexed one."""

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class OffsetIndexEntry:
    offset: Offset
    position: int


@dataclass(frozen=True, slots=True)
class TimeIndexEntry:
    timestamp: TimestampMs
    offset: Offset


def offset_index_entries(data: bytes, base_offset: int, source: str) -> Iterator[OffsetIndexEntry]:
    """Yield the entries, ascending. Raises CorruptData if they do not increase."""

    def meaning(relative: int, position: int) -> OffsetIndexEntry | None:
        if relative < 0 or position < 0:
            return None
        return OffsetIndexEntry(Offset(base_offset + relative), position)

    def increases(last: OffsetIndexEntry, entry: OffsetIndexEntry) -> bool:
        return entry.offset > last.offset and entry.position > last.position

    return _entries(data, _OFFSET_ENTRY, meaning, increases, "offset index", source)


def time_index_entries(data: bytes, base_offset: int, source: str) -> Iterator[TimeIndexEntry]:
    """Yield the entries, ascending by timestamp. Raises CorruptData if they do not increase."""

    def meaning(timestamp: int, relative: int) -> TimeIndexEntry | None:
        return TimeIndexEntry(TimestampMs(timestamp), Offset(base_offset + relative)) if relative >= 0 else None

    def increases(last: TimeIndexEntry, entry: TimeIndexEntry) -> bool:
        return entry.timestamp >= last.timestamp and entry.offset >= last.offset

    return _entries(data, _TIME_ENTRY, meaning, increases, "time index", source)


def _entries(
    data: bytes,
    form: struct.Struct,
    meaning: Callable[[int, int], E | None],
    increases: Callable[[E, E], bool],
    what: str,
    source: str,
) -> Iterator[E]:
    """Yield the entries one by one, because all entries of 1 GiB of log may take 30 MiB as objects.

    ``meaning`` returns the entry of two numbers, or None if a number is wrongly negative. ``increases(last, entry)``
    returns whether ``entry`` may follow ``last``. Raises CorruptData with the name of the index, ``what``.
    """
    if len(data) % form.size:
        raise CorruptData(f"{what} is cut off", file=source, bytes=len(data))
    last: E | None = None
    for number, (first, second) in enumerate(form.iter_unpack(data)):
        if first == second == 0 and (last is not None or not any(data)):
            break  # preallocated zeros of the active segment's file
        entry = meaning(first, second)
        if entry is None:
            raise CorruptData(f"{what} entry is negative", file=source, position=number * form.size)
        if last is not None and not increases(last, entry):
            raise CorruptData(f"{what} does not increase", file=source, position=number * form.size)
        last = entry
        yield entry


def lookup_position(entries: list[OffsetIndexEntry], offset: int) -> int:
    """Return the byte position from which to scan for ``offset``: that of the last entry at or below it, else 0."""
    at = bisect_right(entries, offset, key=lambda entry: entry.offset)
    return entries[at - 1].position if at else 0


def position_in(index: bytes, base_offset: int, offset: int) -> int:
    """Return `lookup_position` of an index file, which may be preallocated, without a check of each entry."""
    count = min(-(-len(index.rstrip(b"\0")) // _OFFSET_ENTRY.size), len(index) // _OFFSET_ENTRY.size)

    def entry(number: int) -> tuple[int, int]:
        relative, position = _OFFSET_ENTRY.unpack_from(index, number * _OFFSET_ENTRY.size)
        return relative, position

    at = bisect_right(range(count), offset - base_offset, key=lambda number: entry(number)[0])
    return max(0, entry(at - 1)[1]) if at else 0


def lookup_offset(entries: list[TimeIndexEntry], timestamp: int) -> Offset | None:
    """Return an offset below which all records are older than ``timestamp``, or None if no entry is older."""
    at = bisect_right(entries, timestamp - 1, key=lambda entry: entry.timestamp)
    return entries[at - 1].offset if at else None


class OffsetIndexBuilder:
    """Builds an index from batches, added in order. The bytes are those that Kafka's recovery would write."""

    def __init__(self, base_offset: int) -> None:
        self._base, self._last_position = base_offset, 0
        self._entries = bytearray()

    def add(self, batch: BatchHeader) -> bool:
        """Add a batch and return whether it got an entry."""
        if batch.position - self._last_position <= INTERVAL_BYTES:
            return False
        self._entries += _OFFSET_ENTRY.pack(batch.last_offset - self._base, batch.position)
        self._last_position = batch.position
        return True

    def bytes(self) -> bytes:
        return bytes(self._entries)


class TimeIndexBuilder:
    """Builds a time index. Call `add` for the batches in order, then `bytes`. ``indexed``: whether the offset index got
    an entry for the batch."""

    def __init__(self, base_offset: int) -> None:
        self._base = base_offset
        self._entries, self._entered = bytearray(), -1
        self.highest, self._highest_offset = -1, base_offset
        """The highest timestamp so far, or -1 if no batch had one, and its offset."""

    def add(self, batch: BatchHeader, indexed: bool) -> None:
        if batch.max_timestamp > self.highest:
            self.highest, self._highest_offset = batch.max_timestamp, batch.last_offset
        if indexed:
            self._append()

    def _append(self) -> None:
        if self.highest > self._entered:
            self._entries += _TIME_ENTRY.pack(self.highest, self._highest_offset - self._base)
            self._entered = self.highest

    def bytes(self) -> bytes:
        """Return the index, with the entry that Kafka adds when it rolls a segment."""
        self._append()
        return bytes(self._entries)


class _EntriesInTurn(Generic[E]):
    """Holds only the next entry of an index, for a check that reads the index in parallel with its log."""

    def __init__(self, entries: Iterable[E]) -> None:
        self._entries = iter(entries)
        self.wrong = False
        """True if an entry does not fit the log, or if reading the entries raised CorruptData."""
        self.next: E | None = None
        self.take()

    def take(self) -> None:
        """Advance `next` to the next entry, or to None at the end."""
        try:
            self.next = next(self._entries, None)
        except CorruptData:
            self.wrong, self.next = True, None


class OffsetIndexCheck:
    """Checks that an index file fits a log: add the log's batches, then read `fits`.

    Every entry must point to the beginning of a batch. The entry's offset must lie between the batch's base offset and
    ``end_offset``, both included. ``entries`` are read in parallel with the log. They may raise CorruptData: then they
    do not fit.
    """

    def __init__(self, entries: Iterable[OffsetIndexEntry], end_offset: int) -> None:
        self._entries, self._end_offset = _EntriesInTurn(entries), end_offset

    def add(self, batch: BatchHeader) -> None:
        entries, entry = self._entries, self._entries.next
        if entry is not None and entry.position <= batch.position:
            in_order = batch.base_offset <= entry.offset <= self._end_offset
            entries.wrong |= entry.position < batch.position or not in_order
            entries.take()

    @property
    def fits(self) -> bool:
        return self._entries.next is None and not self._entries.wrong


class TimeIndexCheck:
    """Checks that an index file fits a log, as `OffsetIndexCheck` does.

    An entry (timestamp, offset) states that no record up to ``offset`` is younger than ``timestamp``. The last entry
    must have the segment's highest timestamp.
    """

    def __init__(self, entries: Iterable[TimeIndexEntry]) -> None:
        self._entries, self._last, self._highest = _EntriesInTurn(entries), -1, -1

    def add(self, batch: BatchHeader, highest: int) -> None:
        """Check the next batch. ``highest``: the highest timestamp of the log up to and including this batch."""
        entries, self._highest = self._entries, highest
        while (entry := entries.next) is not None and entry.offset <= batch.last_offset:
            entries.wrong |= entry.offset < batch.base_offset or entry.timestamp != highest
            self._last = entry.timestamp
            entries.take()

    @property
    def fits(self) -> bool:
        return self._entries.next is None and not self._entries.wrong and self._last == self._highest != -1
