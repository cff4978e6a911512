"""Read, build and check ``.index`` files. An entry has a relative offset (int32) and a byte position (int32).

An entry names the *last* offset of an append and the byte where that append begins; an append may hold several batches.
(Kafka's ``OffsetIndex``.)
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..state.offsets import Offset
from .batch import BatchHeader
from .index_entries import EntriesInTurn, index_entries

_ENTRY = struct.Struct(">ii")
INTERVAL_BYTES = 4096
"""Kafka's ``index.interval.bytes``: an append gets an entry if it begins more than this after the last indexed one."""


@dataclass(frozen=True, slots=True)
class OffsetIndexEntry:
    offset: Offset
    position: int


def parse_offset_index(data: bytes, base_offset: int, source: str) -> list[OffsetIndexEntry]:
    """Return the entries, ascending. Raises CorruptData if they do not increase."""
    return list(offset_index_entries(data, base_offset, source))


def offset_index_entries(data: bytes, base_offset: int, source: str) -> Iterator[OffsetIndexEntry]:
    """Yield the entries of `parse_offset_index` one by one."""

    def meaning(relative: int, position: int) -> OffsetIndexEntry | None:
        if relative < 0 or position < 0:
            return None
        return OffsetIndexEntry(Offset(base_offset + relative), position)

    def increases(last: OffsetIndexEntry, entry: OffsetIndexEntry) -> bool:
        return entry.offset > last.offset and entry.position > last.position

    return index_entries(data, _ENTRY, meaning, increases, "offset index", source)


def lookup_position(entries: list[OffsetIndexEntry], offset: int) -> int:
    """Return the byte position from which to scan for ``offset``: that of the last entry at or below it, else 0."""
    at = bisect_right(entries, offset, key=lambda entry: entry.offset)
    return entries[at - 1].position if at else 0


class OffsetIndexBuilder:
    """Builds an index from batches, added in order. The bytes are those that Kafka's recovery would write."""

    def __init__(self, base_offset: int, interval_bytes: int = INTERVAL_BYTES) -> None:
        self._base, self._interval = base_offset, interval_bytes
        self._last_position = 0
        self._entries = bytearray()

    def add(self, batch: BatchHeader) -> bool:
        """Add a batch and return whether it got an entry."""
        if batch.position - self._last_position <= self._interval:
            return False
        self._entries += _ENTRY.pack(batch.last_offset - self._base, batch.position)
        self._last_position = batch.position
        return True

    def bytes(self) -> bytes:
        return bytes(self._entries)


class OffsetIndexCheck:
    """Checks that an index file fits a log: add the log's batches, then read `fits`.

    Every entry must point to the beginning of a batch. The entry's offset must lie between the batch's base offset and
    ``end_offset``, both included. ``entries`` are read in parallel with the log. They may raise CorruptData: then they
    do not fit.
    """

    def __init__(self, entries: Iterable[OffsetIndexEntry], end_offset: int) -> None:
        self._entries, self._end_offset = EntriesInTurn(entries), end_offset

    def add(self, batch: BatchHeader) -> None:
        entries, entry = self._entries, self._entries.next
        if entry is not None and entry.position <= batch.position:
            in_order = batch.base_offset <= entry.offset <= self._end_offset
            entries.wrong |= entry.position < batch.position or not in_order
            entries.take()

    @property
    def fits(self) -> bool:
        return self._entries.next is None and not self._entries.wrong


def build_offset_index(batches: Iterable[BatchHeader], base_offset: int, interval_bytes: int = INTERVAL_BYTES) -> bytes:
    """Return the index file of a segment's batches, which come in order."""
    builder = OffsetIndexBuilder(base_offset, interval_bytes)
    for batch in batches:
        builder.add(batch)
    return builder.bytes()
