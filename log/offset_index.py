"""``.index``: offset to byte position, 8 bytes an entry: relative offset int32, position int32.

An entry names the *last* offset of an append and the byte where that append begins; an append may hold several batches.
The active segment's file is preallocated: zero entries at its end are not data (Kafka's ``OffsetIndex``).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..state.errors import CorruptData
from ..state.offsets import Offset
from .batch import BatchHeader

_ENTRY = struct.Struct(">ii")
INTERVAL_BYTES = 4096
"""Kafka's ``index.interval.bytes``: an entry for every append that begins further than this after the last one."""


@dataclass(frozen=True, slots=True)
class OffsetIndexEntry:
    offset: Offset
    position: int


def parse_offset_index(data: bytes, base_offset: int, source: str) -> list[OffsetIndexEntry]:
    """Ascending. Raises CorruptData when entries do not increase."""
    return list(offset_index_entries(data, base_offset, source))


def offset_index_entries(data: bytes, base_offset: int, source: str) -> Iterator[OffsetIndexEntry]:
    """`parse_offset_index`, one after the other: as objects the entries of 1 GiB may be 30 MiB."""
    if len(data) % _ENTRY.size:
        raise CorruptData("offset index is cut off", file=source, bytes=len(data))
    last: OffsetIndexEntry | None = None
    for number, (relative, position) in enumerate(_ENTRY.iter_unpack(data)):
        if last is not None and relative == 0 and position == 0:
            break
        if relative == 0 and position == 0 and not any(data):
            break
        entry = OffsetIndexEntry(Offset(base_offset + relative), position)
        if relative < 0 or position < 0:
            raise CorruptData("offset index entry is negative", file=source, position=number * _ENTRY.size)
        if last is not None and (entry.offset <= last.offset or entry.position <= last.position):
            raise CorruptData("offset index does not increase", file=source, position=number * _ENTRY.size)
        last = entry
        yield entry


def lookup_position(entries: list[OffsetIndexEntry], offset: int) -> int:
    """Where to begin to scan for ``offset``: the position of the greatest entry at or below it, else 0."""
    at = bisect_right(entries, offset, key=lambda entry: entry.offset)
    return entries[at - 1].position if at else 0


class OffsetIndexBuilder:
    """Push batches in order; the bytes are what Kafka's recovery would write."""

    def __init__(self, base_offset: int, interval_bytes: int = INTERVAL_BYTES) -> None:
        self._base, self._interval = base_offset, interval_bytes
        self._last_position = 0
        self._entries = bytearray()

    def add(self, batch: BatchHeader) -> bool:
        """True when the batch got an entry."""
        if batch.position - self._last_position <= self._interval:
            return False
        self._entries += _ENTRY.pack(batch.last_offset - self._base, batch.position)
        self._last_position = batch.position
        return True

    def bytes(self) -> bytes:
        return bytes(self._entries)


class OffsetIndexCheck:
    """Whether an index file fits a log: push the log's batches, then ask `fits`.

    Every entry must point to the beginning of a batch whose offsets do not exceed the entry's. ``entries`` are taken as
    the log goes on; when they end in CorruptData, they do not fit.
    """

    def __init__(self, entries: Iterable[OffsetIndexEntry], end_offset: int) -> None:
        self._entries, self._end_offset = iter(entries), end_offset
        self._wrong = False
        self._next = self._take()

    def add(self, batch: BatchHeader) -> None:
        entry = self._next
        if entry is not None and entry.position <= batch.position:
            self._wrong |= entry.position < batch.position or not batch.base_offset <= entry.offset <= self._end_offset
            self._next = self._take()

    def _take(self) -> OffsetIndexEntry | None:
        try:
            return next(self._entries, None)
        except CorruptData:
            self._wrong = True
            return None

    @property
    def fits(self) -> bool:
        return self._next is None and not self._wrong


def build_offset_index(batches: Iterable[BatchHeader], base_offset: int, interval_bytes: int = INTERVAL_BYTES) -> bytes:
    """The file of a segment's batches, in order."""
    builder = OffsetIndexBuilder(base_offset, interval_bytes)
    for batch in batches:
        builder.add(batch)
    return builder.bytes()
