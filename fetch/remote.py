"""The remote tier for fetch: complete batches of one copied segment, from an offset on.

In a segment written by tierstate, an uncached read of one offset costs two requests: manifest and chunk. The manifest
has the first batch offset of every chunk; the batch is found in the chunk by this offset and its CRC. A foreign segment
costs three requests, because its offset index has the position. A reader that continues where it stopped needs no
lookup. Memory of a read: ``max_bytes`` and one batch, in addition to the chunk cache and `OPEN_SEGMENTS` manifests.
A read is sequential if it begins where an earlier read ended: then `prefetch.py` loads the next chunks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from cachetools import LRUCache

from ..log.isolation import AbortFilter, MarkerCheck
from ..runtime.clock import Clock
from ..runtime.listener import Listener, ignore
from ..state.errors import CorruptData, InvalidRequest, OtherBytes
from ..state.ids import TopicIdPartition
from ..state.object_keys import ObjectKeys, ObjectKind, object_key, require_own
from ..state.offsets import Offset, OffsetRange
from ..state.routing import Isolation
from ..state.segment import AbortedRange, AbortedRanges, RemoteSegment
from ..storage.object_store import ObjectReader
from ..storage.segment.buffers import joined
from ..storage.segment.cache import ChunkCache
from ..storage.segment.encryption import KeyUnwrapper
from ..storage.segment.log_chunks import ObjectReads
from ..storage.segment.manifest import IndexKind
from ..storage.segment.reader import SegmentReader, read_manifest, require_described
from .batch_order import BatchOrder, Misplaced
from .known_partitions import KnownPartitions
from .locate import locate_batch, unproven
from .metered_reads import MeteredReads
from .prefetch import Following, Prefetch
from .window_batches import (
    BASE,
    BATCH_PREFIX,
    EPOCH,
    LAST,
    POSITION,
    SIZE,
    WindowBatches,
    batch_size,
    batches_of,
    headers_of,
    holds_a_batch,
)

PLAIN_NAMES = ObjectKeys()
OPEN_SEGMENTS = 256
REMEMBERED_POSITIONS = 4096


@dataclass(frozen=True, slots=True)
class RemotePiece:
    """``data`` is empty if the segment has no batch with offsets of the requested range. ``next_offset`` is then the
    first offset after the range."""

    data: bytes | memoryview
    aborted: tuple[AbortedRange, ...]
    next_offset: Offset
    position: int = 0
    """The byte of the plain log at which the data begins."""


def open_segment(
    store: ObjectReads, segment: RemoteSegment, keys: KeyUnwrapper | None, cache: ChunkCache | None
) -> SegmentReader:
    """Open the segment that a fact describes.

    Raises ObjectNotFound, CorruptData (also if the objects contradict the descriptor), and InvalidRequest if the
    segment is encrypted and ``keys`` is None.
    """
    require_own(segment)
    try:
        manifest = read_manifest(store, segment.object_key)
    except InvalidRequest as error:  # an unreadable form, although the fact names a readable one
        raise CorruptData(f"the manifest is damaged: {error.message}", **error.facts) from error
    reader = SegmentReader(store, segment.object_key, manifest, keys=keys, cache=cache)
    require_described(manifest, segment)
    if reader.plain_bytes != segment.log_bytes:
        raise CorruptData(
            "manifest and fact disagree about the length of the log",
            file=object_key(segment.object_key, ObjectKind.MANIFEST),
            manifest=reader.plain_bytes,
            fact=segment.log_bytes,
        )
    return reader


def aborted_of(
    segment: RemoteSegment, reader: SegmentReader, touched: OffsetRange, isolation: Isolation
) -> tuple[AbortedRange, ...]:
    """Return the aborted ranges that touch these offsets; none under read_uncommitted. Raises CorruptData if the
    manifest has other ranges than the fact."""
    if isolation is Isolation.READ_UNCOMMITTED or segment.aborted.count == 0:
        return ()
    entries = segment.aborted.entries
    if not segment.aborted.inline:
        block = reader.manifest.tierstate
        entries = block.aborted if block is not None else ()
        if AbortedRanges.of(entries).sha256 != segment.aborted.sha256:
            key = object_key(segment.object_key, ObjectKind.MANIFEST)
            raise CorruptData("the manifest's aborted ranges are not those of the fact", file=key)
    return touching(entries, touched)


def touching(aborted: Iterable[AbortedRange], touched: OffsetRange) -> tuple[AbortedRange, ...]:
    return tuple(each for each in aborted if each.first <= touched.end and each.last >= touched.start)


def nothing() -> tuple[()]:
    """Return no segments, for a reader whose next segments are unknown."""
    return ()


class RemoteTier:
    """Reads segments by their descriptor. Thread-safe. ``prefetch``: bytes loaded ahead of a sequential reader.
    ``names``: the current names of segments, used by `known` only.

    `close` stops loading ahead and releases the cache's disk. Readers without the cache use ``store`` and ``keys``.
    """

    served_by_brokers = False
    """Whether the brokers serve this tier, too (KIP-405). Then they are asked only for what is local."""

    def __init__(
        self,
        store: ObjectReader,
        cache: ChunkCache,
        clock: Clock,
        *,
        keys: KeyUnwrapper | None = None,
        names: ObjectKeys = PLAIN_NAMES,
        prefetch: int = 0,
        listener: Listener = ignore,
    ) -> None:
        self.cache, self.prefetch = cache, Prefetch(cache, self.open, prefetch)
        self.store, self.keys = store, keys
        self._metered = MeteredReads(store, clock, listener)
        self.known = KnownPartitions(store, names)
        self._lock = threading.Lock()
        self._open: LRUCache[str, tuple[RemoteSegment, SegmentReader]] = LRUCache(OPEN_SEGMENTS)
        self._positions: LRUCache[tuple[str, int], int] = LRUCache(REMEMBERED_POSITIONS)
        self._ends: LRUCache[tuple[TopicIdPartition, int], None] = LRUCache(REMEMBERED_POSITIONS)
        self._times: LRUCache[str, bytes] = LRUCache(REMEMBERED_POSITIONS)
        """SHA-256 of the time indexes that were verified."""

    def open(self, segment: RemoteSegment) -> SegmentReader:
        """Return the reader of `open_segment`, and keep it for later calls."""
        with self._lock:
            cached = self._open.get(segment.object_key)
        if cached is not None and cached[0] == segment:  # another fact may name the same objects
            return cached[1]
        reader = open_segment(self._metered, segment, self.keys, self.cache)
        with self._lock:
            self._open[segment.object_key] = segment, reader
        return reader

    def time_index(self, segment: RemoteSegment) -> bytes:
        """Return Kafka's time index, verified: a wrong time would skip records, and no other check would detect it.

        One checksum covers all indexes of a segment, so the first call reads all. Kafka's records (KIP-405) have no
        checksum. Raises ObjectNotFound, CorruptData.
        """
        reader = self.open(segment)
        index = reader.indexes(IndexKind.TIME) or b""
        if not segment.described:
            return index
        with self._lock:
            proven = self._times.get(segment.object_key)
        digest = sha256(index).digest()
        if digest == proven:
            return index
        indexes = (index if kind is IndexKind.TIME else reader.indexes(kind) or b"" for kind in IndexKind)
        if sha256(b"".join(indexes)).digest() != segment.indexes_sha256:
            key = object_key(segment.object_key, ObjectKind.INDEXES)
            raise CorruptData("the indexes are not those that were copied: their SHA-256 is another", file=key)
        with self._lock:
            self._times[segment.object_key] = digest
        return index

    def close(self) -> None:
        """Stop loading ahead, and release the cache's disk. Reads still work. Idempotent; does not wait."""
        self.prefetch.close()
        self.cache.close()

    def read(
        self,
        segment: RemoteSegment,
        offsets: OffsetRange,
        max_bytes: int,
        isolation: Isolation,
        following: Following = nothing,
    ) -> RemotePiece:
        """Return complete batches with offsets of ``offsets``, from its start: about ``max_bytes``, but at least one.

        If a batch is damaged, the batches before it are returned. A read that begins at the damaged batch raises
        CorruptData, and so does a marker that contradicts the segment's aborted ranges. A chunk with other bytes than
        those copied is used only if `unproven` finds one of its batches wrong by itself.

        At the first damage the objects are read once more, past all caches: a store or a cache may have returned wrong
        bytes once. Objects of Aiven's plugin have no checksums: the first read compares the CRCs of their batches.
        """
        with suppress(CorruptData):
            reader = self.open(segment)
            taken = self._taken(segment, reader, offsets, max_bytes, following)
            return self._handed_out(segment, reader, offsets, isolation, *taken)
        with self._lock:
            self._open.pop(segment.object_key, None)
        reader = open_segment(self._metered, segment, self.keys, None)
        try:
            taken = self._taken(segment, reader, offsets, max_bytes, None)
        except OtherBytes as error:
            try:
                reader = unproven(reader, error, segment)
                taken = self._taken(segment, reader, offsets, max_bytes, None)
            except CorruptData as damage:
                taken = self._before(damage, segment, reader, offsets)
        except CorruptData as damage:
            taken = self._before(damage, segment, reader, offsets)
        return self._handed_out(segment, reader, offsets, isolation, *taken)

    def _before(
        self, damage: CorruptData, segment: RemoteSegment, reader: SegmentReader, offsets: OffsetRange
    ) -> tuple[WindowBatches | None, int]:
        """Return the result of `_taken` for the batches before ``damage``. Raises ``damage`` if there are none.

        If offsets may be missing, only the next batch shows that a batch was moved. So the last batch is left out.
        """
        position, _ = self._position(segment, reader, offsets.start)
        chunk, stop = damage.facts.get("chunk"), damage.facts.get("position")
        by_chunk = isinstance(chunk, int) and not isinstance(damage, Misplaced)
        if isinstance(chunk, int) and by_chunk:
            stop = reader.manifest.chunks.chunk(chunk).plain_start
        if not isinstance(stop, int) or stop <= position:
            raise damage
        taken, reached = self._taken(segment, reader, offsets, stop - position, None)
        if segment.has_gaps and not by_chunk:
            last = None if taken is None else taken.last
            if last is None or last.position <= position:
                raise damage
            taken, reached = self._taken(segment, reader, offsets, last.position - position, None)
        return taken, reached

    def _taken(
        self,
        segment: RemoteSegment,
        reader: SegmentReader,
        offsets: OffsetRange,
        max_bytes: int,
        following: Following | None,
    ) -> tuple[WindowBatches | None, int]:
        """Return the batches, and the byte of the plain log after them.

        ``following`` None: this is the second read. Nothing is loaded ahead, and only a decoder compares CRCs.
        """
        position, order = self._position(segment, reader, offsets.start)
        alone = not self._goes_on(segment, offsets.start)
        verify_crc = following is not None and not reader.log.checksums
        if not alone and following is not None:
            self.prefetch.after(reader, position + max_bytes, offsets, following)
        batches: WindowBatches | None = None
        while position < reader.plain_bytes:
            window = self._window(segment, reader, position, max_bytes, alone)
            batches = batches_of(window, reader.log.key, position, offsets, order, verify_crc=verify_crc)
            position += batches.stop
            if batches.finished or batches.first is not None:
                break
        return batches, position

    def _handed_out(
        self,
        segment: RemoteSegment,
        reader: SegmentReader,
        offsets: OffsetRange,
        isolation: Isolation,
        taken: WindowBatches | None,
        position: int,
    ) -> RemotePiece:
        """Return the piece of ``taken`` and remember where it ends. ``position``: the end of the batches taken."""
        first, last = (None, None) if taken is None else (taken.first, taken.last)
        next_offset = Offset(offsets.end + 1)
        if taken is not None and last is not None and not taken.finished:
            next_offset = Offset(min(last.last_offset, offsets.end) + 1)
        inside = last is not None and last.last_offset >= next_offset  # a later read begins inside the last batch
        self._remember(segment, next_offset, None if inside else position)
        if taken is None or first is None or last is None:
            return RemotePiece(b"", (), next_offset)
        touched = OffsetRange(Offset(first.base_offset), Offset(last.last_offset))
        aborted = self._aborted_in(segment, reader, taken, touched, isolation)
        if isolation is Isolation.READ_COMMITTED and taken.of_transactions:
            check = MarkerCheck(AbortFilter(aborted), reader.log.key)
            for header in taken.of_transactions:
                check.add(header, taken.data, first.position)
        return RemotePiece(taken.data, aborted, next_offset, position=first.position)

    def with_aborted(self, segment: RemoteSegment) -> RemoteSegment:
        """Return the segment with its aborted ranges, for readers that have only the segment: it has them already."""
        return segment

    def _aborted_in(
        self,
        segment: RemoteSegment,
        reader: SegmentReader,
        taken: WindowBatches,
        touched: OffsetRange,
        isolation: Isolation,
    ) -> tuple[AbortedRange, ...]:
        """Return the aborted ranges that touch the batches of ``taken``, which have the offsets ``touched``."""
        return aborted_of(segment, reader, touched, isolation)

    def _remember(self, segment: RemoteSegment, next_offset: Offset, position: int | None) -> None:
        """Remember the offset where a read ended, and its position in the plain log."""
        with self._lock:
            self._ends[segment.partition, next_offset] = None
            if position is not None:
                self._positions[segment.object_key, next_offset] = position

    def _goes_on(self, segment: RemoteSegment, offset: int) -> bool:
        with self._lock:
            return (segment.partition, offset) in self._ends

    def _position(self, segment: RemoteSegment, reader: SegmentReader, offset: Offset) -> tuple[int, BatchOrder]:
        """Return the position of a batch at or before the one with ``offset``, and the checks for the read from it."""
        with self._lock:
            position = self._positions.get((segment.object_key, offset))
        if position is not None:
            return position, BatchOrder(reader, segment, offset)
        at = locate_batch(reader, segment.offsets.start, offset, reader.log.key)
        order = BatchOrder(reader, segment)
        return _past_those_before(reader, at, offset, order), order

    def _window(
        self, segment: RemoteSegment, reader: SegmentReader, position: int, room: int, alone: bool
    ) -> memoryview:
        """Return bytes from ``position`` on, with at least one complete batch. Raises CorruptData if there is none."""
        stop = position + max(room, BATCH_PREFIX.size)
        window = joined(reader.plain_range(position, stop, alone=alone))
        if holds_a_batch(window):
            return window
        if len(window) >= BATCH_PREFIX.size:
            size = batch_size(window)
            if len(window) < size <= reader.plain_bytes - position:
                return joined(reader.plain_range(position, position + size, alone=alone))
        raise CorruptData("the log ends inside a batch", file=reader.log.key, position=position)


def _past_those_before(reader: SegmentReader, position: int, offset: Offset, order: BatchOrder) -> int:
    """Return the position after the batches that end before ``offset``. Skips only batches in a cached chunk."""
    chunk_bytes = reader.manifest.chunks.chunk_bytes
    cached = reader.held(position, (position // chunk_bytes + 1) * chunk_bytes)
    if cached is None:
        return position
    rows = headers_of(memoryview(cached[0]), offset)
    rows = rows[: int(np.searchsorted(rows[:, LAST], offset))]
    positions, sizes = rows[:, POSITION] + position, rows[:, SIZE]
    if not len(rows) or not order.holds(positions, rows[:, BASE], rows[:, LAST], sizes, rows[:, EPOCH]):
        return position  # the read that follows reports the error
    return int(positions[-1] + sizes[-1])
