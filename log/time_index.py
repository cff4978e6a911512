"""Read, build and check ``.timeindex`` files (Kafka's ``TimeIndex``).

An entry has the highest timestamp so far (int64, ms) and the relative offset of that timestamp (int32).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..state.offsets import Offset, TimestampMs
from .batch import BatchHeader
from .index_entries import EntriesInTurn, index_entries
from .offset_index import INTERVAL_BYTES, OffsetIndexBuilder

_ENTRY = struct.Struct(">qi")
ENTRY_BYTES = _ENTRY.size


@dataclass(frozen=True, slots=True)
class TimeIndexEntry:
    timestamp: TimestampMs
    offset: Offset


def parse_time_index(data: bytes, base_offset: int, source: str) -> list[TimeIndexEntry]:
    """Return the entries, ascending by timestamp. Raises CorruptData if they do not increase."""
    return list(time_index_entries(data, base_offset, source))


def time_index_entries(data: bytes, base_offset: int, source: str) -> Iterator[TimeIndexEntry]:
    """Yield the entries of `parse_time_index` one by one."""

    def meaning(timestamp: int, relative: int) -> TimeIndexEntry | None:
        return TimeIndexEntry(TimestampMs(timestamp), Offset(base_offset + relative)) if relative >= 0 else None

    def increases(last: TimeIndexEntry, entry: TimeIndexEntry) -> bool:
        return entry.timestamp >= last.timestamp and entry.offset >= last.offset

    return index_entries(data, _ENTRY, meaning, increases, "time index", source)


def lookup_offset(entries: list[TimeIndexEntry], timestamp: int) -> Offset | None:
    """Return an offset below which all records are older than ``timestamp``, or None if no entry is older."""
    at = bisect_right(entries, timestamp - 1, key=lambda entry: entry.timestamp)
    return entries[at - 1].offset if at else None


class TimeIndexBuilder:
    """Builds a time index. Call `add` for the batches in order, then `bytes`. ``indexed``: whether the offset index got
    an entry for the batch."""

    def __init__(self, base_offset: int) -> None:
        self._base = base_offset
        self._entries, self._entered = bytearray(), -1
        self._highest, self._highest_offset = -1, base_offset

    def add(self, batch: BatchHeader, indexed: bool) -> None:
        if batch.max_timestamp > self._highest:
            self._highest, self._highest_offset = batch.max_timestamp, batch.last_offset
        if indexed:
            self._append()

    @property
    def highest(self) -> int:
        """Return the highest timestamp so far, or -1 if no batch had one."""
        return self._highest

    def _append(self) -> None:
        if self._highest > self._entered:
            self._entries += _ENTRY.pack(self._highest, self._highest_offset - self._base)
            self._entered = self._highest

    def bytes(self) -> bytes:
        """Return the index, with the entry that Kafka adds when it rolls a segment."""
        self._append()
        return bytes(self._entries)


class TimeIndexCheck:
    """Checks that an index file fits a log: add the log's batches, then read `fits`.

    An entry (timestamp, offset) states that no record up to ``offset`` is younger than ``timestamp``. The last entry
    must have the segment's highest timestamp. ``entries`` are read in parallel with the log. They may raise
    CorruptData: then they do not fit.
    """

    def __init__(self, entries: Iterable[TimeIndexEntry]) -> None:
        self._entries, self._last, self._highest = EntriesInTurn(entries), -1, -1

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


def build_time_index(batches: Iterable[BatchHeader], base_offset: int, interval_bytes: int = INTERVAL_BYTES) -> bytes:
    """Return the index file of a rolled segment's batches, which come in order."""
    offsets, times = OffsetIndexBuilder(base_offset, interval_bytes), TimeIndexBuilder(base_offset)
    for batch in batches:
        times.add(batch, offsets.add(batch))
    return times.bytes()
