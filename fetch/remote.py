"""The remote tier for fetch: complete batches of one copied segment, from an offset on.

In a segment written by tierstate, an uncached read of one offset costs two requests: manifest and chunk. The manifest
has the first batch offset of every chunk; the batch is found in the chunk by this offset and its CRC. A foreign segment
costs three requests, because its offset index has the position. A reader that continues where it stopped needs no
lookup. Memory of a read: ``max_bytes`` and one batch, in addition to the chunk cache and `OPEN_SEGMENTS` manifests.
A read is sequential if it begins where an earlier read ended: then `prefetch.py` loads the next chunks.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np
from cachetools import LRUCache

from ..log.isolation import AbortFilter, MarkerCheck
from ..runtime.clock import Clock
from ..runtime.listener import Listener, RemoteFetched, ignore
from ..state.errors import CorruptData, InvalidRequest, OtherBytes
from ..state.ids import TopicIdPartition
from ..state.object_keys import ObjectKeys, ObjectKind, object_key, require_own
from ..state.objects import ObjectInfo
from ..state.offsets import ByteRange, Offset, OffsetRange
from ..state.partition_view import PartitionView
from ..state.routing import Isolation, LocalBounds
from ..state.segment import AbortedRange, AbortedRanges, RemoteSegment
from ..storage.object_store import MIB, ObjectReader, ObjectReads
from ..storage.segment.buffers import joined
from ..storage.segment.cache import ChunkCache
from ..storage.segment.encryption import KeyUnwrapper
from ..storage.segment.known import check_known
from ..storage.segment.manifest import IndexKind
from ..storage.segment.reader import SegmentReader, read_manifest, require_described
from .batch_order import BatchOrder, Misplaced
from .locate import is_right, locate_batch, unproven
from .piece import StoredBatches
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
)

PLAIN_NAMES = ObjectKeys()
OPEN_SEGMENTS = 256
REMEMBERED_POSITIONS = 4096


@dataclass(frozen=True, slots=True)
class RemotePiece(StoredBatches):
    """``data`` is empty if the segment has no batch with offsets of the requested range. ``next_offset`` is then the
    first offset after the range. ``position``: the byte of the plain log at which the data begins. ``proven``: whether
    the manifest's checksums prove it."""

    position: int = 0
    proven: bool = False


def open_segment(
    store: ObjectReads, segment: RemoteSegment, keys: KeyUnwrapper | None, cache: ChunkCache | None
) -> SegmentReader:
    """Open the segment that a fact describes.

    Raises ObjectNotFound, CorruptData (also if the objects contradict the descriptor), and InvalidRequest if the
    segment is encrypted and ``keys`` is None, or without a bucket.
    """
    require_own(segment)
    try:
        manifest = read_manifest(store, segment.object_key)
    except InvalidRequest as error:  # an unreadable form, although the fact names a readable one
        if "store" in error.facts:  # the store refuses: its bucket does not exist, or is named wrongly
            raise
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


@dataclass(frozen=True, slots=True)
class _Read:
    """One read: the offsets of an opened segment."""

    segment: RemoteSegment
    reader: SegmentReader
    offsets: OffsetRange


def nothing() -> tuple[()]:
    """Return no segments, for a reader whose next segments are unknown."""
    return ()


class KnownPartitions:
    """The check for all partitions that a process reads. Thread-safe. ``names``: names of this cluster's objects."""

    def __init__(self, store: ObjectReader, names: ObjectKeys) -> None:
        self._store, self._names = store, names
        self._new = set[TopicIdPartition]()

    def check(self, view: PartitionView, topic: str, bounds: LocalBounds) -> None:
        """Check the bucket if the view has no log start fact. Only a bucket without the partition proves that nothing
        was copied; it is asked once. Raises TierStateLost if the bucket has the partition, and the store's errors.
        TierStateLost is final only if a view that is read fresh afterwards also raises it.
        """
        if not view.log_starts and bounds.local_start > 0 and view.partition not in self._new:
            check_known(view, topic, self._store, self._names)
            self._new.add(view.partition)


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
        self._ends: LRUCache[tuple[TopicIdPartition, int], tuple[str, int | None]] = LRUCache(REMEMBERED_POSITIONS)
        """For each offset where a read ended: the segment, and the byte of its plain log, if a batch begins there."""
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
        bytes once. If the second read is right, the cache forgets the segment.
        Objects of Aiven's plugin have no checksums: the first read compares the CRCs of their batches.
        """
        with suppress(CorruptData):
            read = _Read(segment, self.open(segment), offsets)
            return self._piece(read, isolation, *self._taken(read, max_bytes, following))
        with self._lock:
            self._open.pop(segment.object_key, None)
        read = _Read(segment, open_segment(self._metered, segment, self.keys, None), offsets)
        try:
            try:
                taken = self._taken(read, max_bytes, None)
                log = read.reader.log.key
                if taken[0] is None or is_right(taken[0].data, log):
                    self.cache.forget(log, read.reader.chunks_of(0, read.reader.plain_bytes))
            except OtherBytes as error:
                read = replace(read, reader=unproven(read.reader, error, segment))
                taken = self._taken(read, max_bytes, None)
        except CorruptData as damage:
            taken = self._before(damage, read)
        return self._piece(read, isolation, *taken)

    def _before(self, damage: CorruptData, read: _Read) -> tuple[WindowBatches | None, int]:
        """Return the result of `_taken` for the batches before ``damage``. Raises ``damage`` if there are none.

        If offsets may be missing, only the next batch shows that a batch was moved. So the last batch is left out.
        """
        position, _ = self._position(read)
        chunk, stop = damage.facts.get("chunk"), damage.facts.get("position")
        by_chunk = isinstance(chunk, int) and not isinstance(damage, Misplaced)
        if isinstance(chunk, int) and by_chunk:
            stop = read.reader.manifest.chunks.chunk(chunk).plain_start
        if not isinstance(stop, int) or stop <= position:
            raise damage
        taken, reached = self._taken(read, stop - position, None)
        if read.segment.has_gaps and not by_chunk:
            last = None if taken is None else taken.last
            if last is None or last.position <= position:
                raise damage
            taken, reached = self._taken(read, last.position - position, None)
        return taken, reached

    def _taken(self, read: _Read, max_bytes: int, following: Following | None) -> tuple[WindowBatches | None, int]:
        """Return the batches, and the byte of the plain log after them.

        ``following`` None: this is the second read. Nothing is loaded ahead, and only a decoder compares CRCs.
        """
        reader, offsets = read.reader, read.offsets
        position, order = self._position(read)
        with self._lock:
            alone = (read.segment.partition, offsets.start) not in self._ends
        verify_crc = following is not None and not reader.log.checksums
        if not alone and following is not None:
            self.prefetch.after(reader, position + max_bytes, offsets, following)
        batches: WindowBatches | None = None
        while position < reader.plain_bytes:
            window = _window(reader, position, max_bytes, alone)
            batches = batches_of(window, reader.log.key, position, offsets, order, verify_crc=verify_crc)
            position += batches.stop
            if batches.finished or batches.first is not None:
                break
        return batches, position

    def _piece(self, read: _Read, isolation: Isolation, taken: WindowBatches | None, position: int) -> RemotePiece:
        """Return the piece of ``taken`` and remember where it ends. ``position``: the end of the batches taken."""
        first, last = (None, None) if taken is None else (taken.first, taken.last)
        next_offset = Offset(read.offsets.end + 1)
        if taken is not None and last is not None and not taken.finished:
            next_offset = Offset(min(last.last_offset, read.offsets.end) + 1)
        inside = last is not None and last.last_offset >= next_offset  # a later read begins inside the last batch
        with self._lock:
            self._ends[read.segment.partition, next_offset] = read.segment.object_key, None if inside else position
        if taken is None or first is None or last is None:
            return RemotePiece(b"", (), next_offset)
        aborted: tuple[AbortedRange, ...] = ()
        if isolation is Isolation.READ_COMMITTED and taken.of_transactions:
            touched = OffsetRange(Offset(first.base_offset), Offset(last.last_offset))
            aborted = self._aborted_in(read.segment, read.reader, touched)
            check = MarkerCheck(AbortFilter(aborted), read.reader.log.key)
            for header in taken.of_transactions:
                check.add(header, taken.data, first.position)
        proven = bool(read.reader.log.checksums)
        return RemotePiece(taken.data, aborted, next_offset, position=first.position, proven=proven)

    def with_aborted(self, segment: RemoteSegment) -> RemoteSegment:
        """Return the segment with its aborted ranges, for readers that have only the segment: it has them already."""
        return segment

    def _aborted_in(
        self, segment: RemoteSegment, reader: SegmentReader, touched: OffsetRange
    ) -> tuple[AbortedRange, ...]:
        """Return the aborted ranges that touch the offsets ``touched``."""
        return aborted_of(segment, reader, touched, Isolation.READ_COMMITTED)

    def _position(self, read: _Read) -> tuple[int, BatchOrder]:
        """Return the position of a batch at or before the first offset, and the checks for the read from it."""
        segment, reader, offset = read.segment, read.reader, read.offsets.start
        with self._lock:
            key, position = self._ends.get((segment.partition, offset), ("", None))
        if position is not None and key == segment.object_key:
            return position, BatchOrder(reader, segment, offset)
        at = locate_batch(reader, segment.offsets.start, offset, reader.log.key)
        order = BatchOrder(reader, segment)
        return _past_those_before(reader, at, offset, order), order


def _window(reader: SegmentReader, position: int, room: int, alone: bool) -> memoryview:
    """Return bytes from ``position`` on, with at least one complete batch. Raises CorruptData if there is none."""
    window = joined(reader.plain_range(position, position + max(room, BATCH_PREFIX.size), alone=alone))
    size = batch_size(window) if len(window) >= BATCH_PREFIX.size else 0
    if len(window) < size <= reader.plain_bytes - position:
        window = joined(reader.plain_range(position, position + size, alone=alone))
    if not BATCH_PREFIX.size < size <= len(window):
        raise CorruptData("the log ends inside a batch", file=reader.log.key, position=position)
    return window


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


class MeteredReads:
    """Answers like the store. Each read, even if failed or unfinished, emits `RemoteFetched`. `head` emits nothing."""

    def __init__(self, store: ObjectReads, clock: Clock, listener: Listener) -> None:
        self._store, self._clock, self._listener = store, clock, listener

    def get(self, key: str, limit: int | None = None) -> bytes:
        began, size = self._clock.monotonic(), 0
        try:
            data = self._store.get(key, limit)
            size = len(data)
            return data
        finally:
            self._listener(RemoteFetched(key, size, self._clock.monotonic() - began))

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        began, size = self._clock.monotonic(), 0
        pieces = self._store.stream_range(key, range, piece_bytes)
        try:
            for piece in pieces:
                size += len(piece)
                yield piece
        finally:
            if isinstance(pieces, Generator):
                pieces.close()
            self._listener(RemoteFetched(key, size, self._clock.monotonic() - began))

    def head(self, key: str) -> ObjectInfo:
        return self._store.head(key)
