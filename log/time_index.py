"""``.timeindex``: the highest timestamp so far, and its offset, 12 bytes an entry: timestamp int64, relative int32.

Zero entries at the end of an active segment's preallocated file are not data (Kafka's ``TimeIndex``).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..state.errors import CorruptData
from ..state.offsets import Offset, TimestampMs
from .batch import BatchHeader
from .offset_index import INTERVAL_BYTES, OffsetIndexBuilder

_ENTRY = struct.Struct(">qi")
ENTRY_BYTES = _ENTRY.size


@dataclass(frozen=True, slots=True)
class TimeIndexEntry:
    timestamp: TimestampMs
    offset: Offset


def parse_time_index(data: bytes, base_offset: int, source: str) -> list[TimeIndexEntry]:
    """Ascending by timestamp. Raises CorruptData when entries do not increase."""
    return list(time_index_entries(data, base_offset, source))


def time_index_entries(data: bytes, base_offset: int, source: str) -> Iterator[TimeIndexEntry]:
    """`parse_time_index`, one after the other: as objects the entries of 1 GiB may be 30 MiB."""
    if len(data) % _ENTRY.size:
        raise CorruptData("time index is cut off", file=source, bytes=len(data))
    last: TimeIndexEntry | None = None
    for number, (timestamp, relative) in enumerate(_ENTRY.iter_unpack(data)):
        if timestamp == 0 and relative == 0 and (last is not None or not any(data)):
            break
        if relative < 0:
            raise CorruptData("time index entry is negative", file=source, position=number * _ENTRY.size)
        entry = TimeIndexEntry(TimestampMs(timestamp), Offset(base_offset + relative))
        if last is not None and (entry.timestamp < last.timestamp or entry.offset < last.offset):
            raise CorruptData("time index does not increase", file=source, position=number * _ENTRY.size)
        last = entry
        yield entry


def lookup_offset(entries: list[TimeIndexEntry], timestamp: int) -> Offset | None:
    """Every offset below the answer is older than ``timestamp``; None when the whole segment may not be."""
    at = bisect_right(entries, timestamp - 1, key=lambda entry: entry.timestamp)
    return entries[at - 1].offset if at else None


class TimeIndexBuilder:
    """Push batches in order and whether each got an offset index entry; then `bytes`."""

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
        """The highest timestamp so far; -1 when no batch had one."""
        return self._highest

    def _append(self) -> None:
        if self._highest > self._entered:
            self._entries += _ENTRY.pack(self._highest, self._highest_offset - self._base)
            self._entered = self._highest

    def bytes(self) -> bytes:
        """With the entry that rolling a segment adds."""
        self._append()
        return bytes(self._entries)


def build_time_index(batches: Iterable[BatchHeader], base_offset: int, interval_bytes: int = INTERVAL_BYTES) -> bytes:
    """The file of a rolled segment's batches, in order."""
    offsets, times = OffsetIndexBuilder(base_offset, interval_bytes), TimeIndexBuilder(base_offset)
    for batch in batches:
        times.add(batch, offsets.add(batch))
    return times.bytes()
