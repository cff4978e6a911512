"""Read copied segments from their first needed batch to their last. Each byte is read once, and returned in place.

    manifests ┆ windows, requests in flight    ┆ whole batches      ┆ the caller
    ──ahead───┆──ahead, into buffers used again┆──────────── where they lie ────

There is no cache, because a reader in order needs each byte once. A batch that is in two windows is joined in the
second window's buffer. A near store (a folder) is read in the caller's thread, by small windows that fit the CPU's
caches; the kernel reads ahead of them. A piece that is still held keeps its buffer, so its bytes never change.
Memory: `WINDOW_BYTES`, or one chunk if that is larger, for each of `PARALLEL` requests, for the piece in the caller's
hands and for the next one: 48 MiB. Chunks to be decrypted or decompressed need their stored bytes, too. Add one batch
and the manifests of `PARALLEL` segments. A near store needs three windows of `NEAR_BYTES` or one chunk. A batch larger
than that is held twice. If a caller closes the iterator early, no thread and no request remains.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from ..log.batch import BatchHeader
from ..log.isolation import AbortFilter, MarkerCheck
from ..state.errors import CorruptData, OtherBytes
from ..state.object_keys import ObjectKind, object_key
from ..state.offsets import ByteRange, Offset, OffsetRange
from ..state.routing import Isolation, ReadRemote
from ..state.segment import AbortedRange, RemoteSegment
from ..storage.crc32c import extended
from ..storage.object_store import MIB, ObjectReads
from ..storage.segment.buffers import Buffers, Window
from ..storage.segment.encryption import KeyUnwrapper
from ..storage.segment.in_order import Work, in_order
from ..storage.segment.log_chunks import WINDOW_BYTES, NearStore
from ..storage.segment.reader import PARALLEL
from .batch_order import BatchOrder
from .locate import is_right, locate_batch, proven_batch, unproven
from .piece import Fetched
from .remote import RemotePiece, aborted_of, open_segment, touching
from .window_batches import BATCH_PREFIX, WindowBatches, batch_size, batches_of, require_cut_off

NEAR_BYTES = 2 * MIB
BEYOND_BYTES = 128 * 1024
"""Bytes read behind the chunk in which the last needed batch begins: most batches end there."""


@dataclass(frozen=True, slots=True)
class PartPiece:
    """Complete batches of one part, at least one, with the offsets from ``offset`` to below ``next_offset``."""

    part: int
    data: memoryview
    aborted: tuple[AbortedRange, ...]
    offset: Offset
    next_offset: Offset
    position: int
    """The byte of the plain log at which the data begins."""


@dataclass(frozen=True, slots=True)
class RemoteReads:
    """Options for reading parts. ``window_bytes``: the most bytes of a request."""

    store: ObjectReads
    keys: KeyUnwrapper | None
    isolation: Isolation
    window_bytes: int = WINDOW_BYTES


Part = tuple[RemoteSegment, OffsetRange]
_Loaded = tuple["_Reading", Window, bool]


def read_parts(parts: Sequence[Part], reads: RemoteReads) -> Generator[PartPiece, None, None]:
    """Yield complete batches with the offsets of each part, part by part. An error follows the pieces before it.

    Raises ObjectNotFound, Unavailable, CorruptData (also if a marker contradicts the segment's aborted ranges), and
    AnotherLog if a part is a complete segment with another log than the copied one.
    """
    parallel = 1 if isinstance(reads.store, NearStore) else PARALLEL
    buffers = Buffers(parallel + 1)
    opening = in_order((partial(_Reading, n, part, reads, buffers) for n, part in enumerate(parts)), parallel)
    with closing(opening), closing(in_order(_loads(opening), parallel)) as loaded:
        for reading, window, last in loaded:
            yield from reading.take(window)
            del window  # its buffer is reused for the next one
            if last:
                yield from reading.rest()


class RemoteRun:
    """A run through parts that compares its place with the current route before every piece. Reading ahead only makes
    bytes arrive sooner. Not thread-safe. Close it: it has requests in flight.
    """

    def __init__(self, parts: Sequence[Part], reads: RemoteReads) -> None:
        self._parts = parts
        self._pieces = read_parts(parts, reads)

    def take(self, where: ReadRemote) -> RemotePiece | None:
        """Return the next piece if it begins at ``where``. None: it begins elsewhere, or the run is over.

        Raises ObjectNotFound, CorruptData, Unavailable.
        """
        piece = next(self._pieces, None)
        if piece is None or piece.offset != where.offsets.start or self._parts[piece.part][0] != where.segment:
            return None
        next_offset = Offset(min(piece.next_offset, where.offsets.end + 1))
        return RemotePiece(piece.data, piece.aborted, next_offset, position=piece.position)

    def close(self) -> None:
        """End the run, its threads and its requests. Idempotent."""
        self._pieces.close()


def _loads(opening: Iterator[_Reading]) -> Iterator[Work[_Loaded]]:
    try:
        for reading in opening:
            yield from reading.loads()
    except Exception as error:  # any error is raised after the results of the work that began before it
        yield partial(_raise, error)


def _raise(error: Exception, left: threading.Event) -> _Loaded:
    raise error


class _Reading:
    """One part. Any thread may do the work of `loads`; `take` gets their results in order, and `rest` ends the part."""

    def __init__(self, number: int, part: Part, reads: RemoteReads, buffers: Buffers, left: threading.Event) -> None:
        self._number, (self._segment, self._offsets) = number, part
        self._isolation, self._buffers = reads.isolation, buffers
        self._reader = reader = open_segment(reads.store, self._segment, reads.keys, None)
        self._window_bytes = min(reads.window_bytes, NEAR_BYTES if isinstance(reads.store, NearStore) else WINDOW_BYTES)
        self._aborted = aborted_of(self._segment, reader, self._offsets, reads.isolation)
        self._source = reader.log.key
        self._markers = MarkerCheck(AbortFilter(self._aborted), self._source)
        self._order = BatchOrder(reader, self._segment)
        self._next = self._offsets.start
        self._finished = False
        whole = self._segment.described and self._offsets == self._segment.offsets and not reader.log.checksums
        self._crc = 0 if whole else None
        """CRC of the plain log taken so far, if all of it is read and its chunks have no checksums."""
        self._first, self._position = self._begin(left)
        self._loaded = self._position
        """The position up to which the plain log was taken."""
        self._tails: list[bytes] = []
        """The last bytes taken, from ``_position`` on: a batch's beginning that lacks at least ``_missing`` bytes."""
        self._missing = 0

    def _begin(self, left: threading.Event) -> tuple[Window | None, int]:
        """Return the position of a batch at or before the first offset, after the window that was read to find it."""
        reader, base = self._reader, self._segment.offsets.start
        chunk_id = reader.chunk_for_offset(self._offsets.start)
        if chunk_id:
            start = chunk_id * reader.manifest.chunks.chunk_bytes
            window = self._window(next(reader.ranges(start, reader.plain_bytes, self._window_bytes)), left)
            offset = proven_batch(reader, chunk_id, window.data, self._source)
            if offset is not None:
                return window, start + offset
        return None, locate_batch(reader, base, self._offsets.start, self._source)

    def loads(self) -> Iterator[Work[_Loaded]]:
        """Yield the work of loading the windows that are needed. The last one is marked as such."""
        first, self._first = self._first, None
        position = self._position if first is None else first.start + len(first.data)
        ranges = [*self._reader.ranges(position, self._stop(position), self._window_bytes)]
        if first is not None:
            yield partial(self._given, first, not ranges)
            del first
        for plain in ranges:
            if self._finished:
                return
            yield partial(self._load, plain, plain is ranges[-1])

    def _given(self, window: Window, last: bool, left: threading.Event) -> _Loaded:
        return self, window, last

    def _load(self, plain: ByteRange, last: bool, left: threading.Event) -> _Loaded:
        return self, self._window(plain, left), last

    def _window(self, plain: ByteRange, left: threading.Event) -> Window:
        try:
            return self._reader.load(plain, self._buffers, left)
        except OtherBytes as error:
            return unproven(self._reader, error, self._segment).load(plain, self._buffers, left)

    def _stop(self, position: int) -> int:
        """Return where windows stop. Later bytes are needed only for a larger batch, or if the chunk table is wrong."""
        last = self._reader.chunk_for_offset(self._offsets.end)
        if last is None:
            return self._reader.plain_bytes
        chunk = self._reader.manifest.chunks.chunk(last)
        return max(position, min(chunk.plain_stop + BEYOND_BYTES, self._reader.plain_bytes))

    def rest(self) -> Iterator[PartPiece]:
        """Read on after the windows until a batch passes the last offset or the log ends: only that ends the part."""
        for plain in self._reader.ranges(self._loaded, self._reader.plain_bytes, min(self._window_bytes, MIB)):
            if self._finished:
                return
            yield from self.take(self._window(plain, threading.Event()))
        if not self._finished and self._tails:
            raise self._inside_a_batch()
        if (wrong := self._another_log()) is not None:
            raise wrong

    def _another_log(self) -> AnotherLog | None:
        """Return the error of a log that was read from end to end and is not the one that was copied."""
        if self._crc is None or self._crc == self._segment.log_crc32c or self._loaded != self._reader.plain_bytes:
            return None
        return another_log(self._segment, self._crc)

    def take(self, window: Window) -> Iterator[PartPiece]:
        """Yield the batches that end in the window. At the end of another log, raise AnotherLog instead if each batch
        is right by itself."""
        data = self._joined(window)
        if data is None:
            return
        wrong = self._another_log()
        if wrong is None or not is_right(data, self._source):  # the decoder finds the wrong batch
            yield from self._pieces(data)
            return
        pieces = list[PartPiece]()
        try:
            for piece in self._pieces(data):
                pieces.append(piece)
        except CorruptData:  # this error is more precise than AnotherLog
            yield from pieces
            raise
        raise wrong

    def _pieces(self, data: memoryview) -> Iterator[PartPiece]:
        gaps = self._order.has_gaps  # then only the next batch reveals a moved one
        batches = batches_of(data, self._source, self._position, self._offsets, self._order, check_tail=gaps)
        self._finished = batches.finished
        if batches.first is not None and batches.last is not None:
            yield self._piece(batches, batches.first, batches.last)
        self._position += batches.stop
        tail = data[batches.stop :]
        self._tails, self._missing = [bytes(tail)] if len(tail) and not self._finished else [], 0
        if self._tails:
            self._missing = self._missing_of(tail, batches.after, self._position)

    def _piece(self, batches: WindowBatches, first: BatchHeader, last: BatchHeader) -> PartPiece:
        for header in batches.of_transactions if self._isolation is Isolation.READ_COMMITTED else ():
            self._markers.add(header, batches.data, first.position)
        touched = OffsetRange(Offset(first.base_offset), Offset(last.last_offset))
        begin, self._next = self._next, Offset(min(touched.end, self._offsets.end) + 1)
        aborted = touching(self._aborted, touched)
        return PartPiece(self._number, batches.data, aborted, begin, self._next, first.position)

    def _joined(self, window: Window) -> memoryview | None:
        """Return the window after the tails. None: their batch is still incomplete, or the part is finished."""
        if self._finished:
            return None
        skipped = self._loaded - window.start  # only complete chunks are loaded
        fresh = window.data[skipped:]
        self._loaded += len(fresh)
        if self._crc is not None:
            self._crc = extended(self._crc, fresh)
        if self._missing > len(fresh):
            self._tails.append(bytes(fresh))
            self._missing -= len(fresh)
            return None
        tail = b"".join(self._tails)
        if skipped:
            return memoryview(tail + fresh) if tail else fresh.toreadonly()
        return window.after(tail)

    def _missing_of(self, tail: memoryview, after: int, position: int) -> int:
        """Return the least number of bytes that the batch in ``tail`` lacks. Raises CorruptData if it is no batch."""
        require_cut_off(tail, self._source, position, after)
        if len(tail) < BATCH_PREFIX.size:
            return 1
        size = batch_size(tail)
        if not BATCH_PREFIX.size < size <= self._reader.plain_bytes - position:
            raise self._inside_a_batch()
        return max(1, size - len(tail))

    def _inside_a_batch(self) -> CorruptData:
        return CorruptData("the log ends inside a batch", file=self._source, position=self._position)


class AnotherLog(CorruptData):
    """The log is another one. Each batch may be correct, but none of them can be trusted."""


def another_log(segment: RemoteSegment, crc32c: int) -> AnotherLog:
    """Return the error of a segment whose plain log has this CRC-32C."""
    return AnotherLog(
        "the log is not the one that was copied: its CRC-32C is another",
        file=object_key(segment.object_key, ObjectKind.LOG),
        expected=f"{segment.log_crc32c:08x}",
        found=f"{crc32c:08x}",
    )


def proven(pieces: Iterable[Fetched]) -> Iterator[Fetched]:
    """Yield the pieces. Raises AnotherLog in place of a segment's last piece if its log is not the one that was copied.
    If a batch of this piece is wrong by itself, the piece is yielded, because the decoder reports the wrong batch."""
    segment: RemoteSegment | None = None
    """The segment that has been read from its start on so far."""
    crc32c = 0
    for piece in pieces:
        current = None if piece.read is None else piece.read.segment
        if current is not None and current.described and piece.offset == current.offsets.start:
            segment, crc32c = current, 0
        elif current != segment:
            segment = None
        if segment is not None:
            crc32c = extended(crc32c, piece.data)
            if piece.next_offset > segment.last_record_offset and crc32c != segment.log_crc32c:
                if is_right(piece.data, segment.object_key):
                    raise another_log(segment, crc32c)
                segment = None
        yield piece
