"""Find where a read begins in a segment's plain log: at a batch at or before the batch with the requested offset."""

from __future__ import annotations

import re
from collections import deque
from contextlib import suppress

from ..log.batch import HEADER_BYTES, iter_batches
from ..log.indexes import lookup_position, offset_index_entries
from ..state.errors import CorruptData, OtherBytes
from ..state.offsets import Offset
from ..state.segment import RemoteSegment
from ..storage.segment.manifest import IndexKind
from ..storage.segment.reader import SegmentReader
from .batch_order import BatchOrder

FIRST_BYTES = 256 * 1024
"""The part of a chunk that is searched first for the first batch; then all of the chunk is searched."""


def locate_batch(reader: SegmentReader, base_offset: Offset, offset: Offset, source: str) -> int:
    """Return the byte position of a batch that begins at or before ``offset``. Raises CorruptData, ObjectNotFound.

    The manifest's chunk table is used if there is one (the chunk is read, and is needed next anyway), else Kafka's
    offset index.
    """
    chunk_id = reader.chunk_for_offset(offset)
    if chunk_id == 0:
        return 0
    if chunk_id is not None:
        position = _first_batch_in_chunk(reader, chunk_id, source)
        if position is not None:
            return position
    return _by_index(reader, base_offset, offset, source)


def _first_batch_in_chunk(reader: SegmentReader, chunk_id: int, source: str) -> int | None:
    """Return the position of the first batch that begins in the chunk: found by base offset, proven by CRC."""
    position = reader.first_batches.get(chunk_id)
    if position is not None:
        return position
    chunk = reader.manifest.chunks.chunk(chunk_id)
    for stop in (min(chunk.plain_start + FIRST_BYTES, chunk.plain_stop), chunk.plain_stop):
        data = memoryview(b"".join(reader.plain_range(chunk.plain_start, stop, alone=True)))
        first = proven_batch(reader, chunk_id, data, source)
        if first is not None:
            reader.first_batches[chunk_id] = chunk.plain_start + first
            return chunk.plain_start + first
    return None


def proven_batch(reader: SegmentReader, chunk_id: int, data: memoryview, source: str) -> int | None:
    """Return where the chunk's first batch begins in ``data``, the beginning of the chunk. Missing bytes are read."""
    block = reader.manifest.tierstate
    base = block.chunk_first_offsets[chunk_id] if block is not None else None
    if base is None:
        return None
    start = reader.manifest.chunks.chunk(chunk_id).plain_start
    pattern, at = re.compile(re.escape(base.to_bytes(8, "big"))), 0
    while (match := pattern.search(data, at)) is not None:
        if _is_batch(reader, start + match.start(), data[match.start() :], source):
            return match.start()
        at = match.start() + 1  # matches may overlap
    return None


def _is_batch(reader: SegmentReader, position: int, data: memoryview, source: str) -> bool:
    """Return whether a batch begins here: magic 2, a length that fits, the right CRC. Records can look like offsets."""
    head = bytes(data[:HEADER_BYTES])
    if len(head) >= 17 and head[16] != 2:
        return False
    size = 12 + int.from_bytes(head[8:12], "big", signed=True) if len(head) >= 12 else 0
    if not HEADER_BYTES <= size <= reader.plain_bytes - position:
        return False
    batch = data[:size] if size <= len(data) else b"".join(reader.plain_range(position, position + size, alone=True))
    try:
        return len(list(iter_batches(batch, source=source, position=position, verify_crc=True))) == 1
    except CorruptData:
        return False


def unproven(reader: SegmentReader, wrong: OtherBytes, segment: RemoteSegment) -> SegmentReader:
    """Return a reader that skips the chunk's checksum, if one of its batches is wrong by itself: the decoder finds this
    batch, and the batches before it are not lost. Otherwise raises ``wrong``. Memory: three chunks.

    A changed base offset is always found in a segment without gaps, but not always in a segment with gaps.
    """
    as_it_is, chunks, chunk = reader.unproven(), reader.manifest.chunks, int(str(wrong.facts["chunk"]))
    source, order = reader.log.key, None if segment.has_gaps else BatchOrder(reader, segment)
    first, stop = max(0, chunk - 1), chunks.chunk(chunk).plain_stop
    start = chunks.chunk(first).plain_start
    data = memoryview(b"".join(as_it_is.plain_range(start, stop + chunks.chunk_bytes)))
    at = proven_batch(as_it_is, first, data, source) if first else 0
    while at is not None and start + at < stop:
        try:
            batch = next(iter_batches(data[at:], source=source, position=start + at, partial_tail_ok=True), None)
            if batch is not None and order is not None:
                order.check(batch)
        except CorruptData:
            return as_it_is
        at = None if batch is None else at + batch.size_bytes
    raise wrong


def is_right(data: bytes | memoryview, source: str) -> bool:
    """Return whether each of these complete batches is right by itself."""
    with suppress(CorruptData):
        deque(iter_batches(data, source=source), 0)
        return True
    return False


def _by_index(reader: SegmentReader, base_offset: Offset, offset: Offset, source: str) -> int:
    """Return, by Kafka's rule, the position in the index's greatest entry at or below ``offset``; 0 without one."""
    entries = list(offset_index_entries(reader.indexes(IndexKind.OFFSET) or b"", base_offset, source))
    position = lookup_position(entries, offset)
    if not 0 <= position < max(1, reader.plain_bytes):
        raise CorruptData("the offset index points outside the log", file=source, position=position)
    return position
