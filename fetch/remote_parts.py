"""Copied segments from their first wanted batch to their last, each byte read once and handed on where it was read to.

    manifests ┆ windows, requests in flight    ┆ whole batches      ┆ the caller
    ──ahead───┆──ahead, into buffers used again┆──────────── where they lie ────

No cache: whoever reads in order comes by once. A batch that lies in two windows is put together in the second one's
buffer. A near store (a folder) is read by small windows in the caller's thread, which find them in the processor's
caches; what is ahead of them is the kernel's business. A piece that is still held keeps its buffer, so its bytes never
change.
Memory: `WINDOW_BYTES`, or one chunk where that is larger, for each of `PARALLEL` requests, the piece in the caller's
hands and for the next one: 48 MiB; of chunks that must be opened what is stored, too; one batch; the manifests of
`PARALLEL` segments. Of a near store three windows of `NEAR_BYTES` or one chunk. A batch larger than that is twice.
A caller who leaves early (closes the iterator) leaves no thread and no request behind.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..log import kernels
from ..log.batch import CONTROL, TRANSACTIONAL, iter_batches, read_header
from ..log.decode import Table
from ..log.isolation import AbortFilter, MarkerCheck
from ..state.errors import CorruptData, OtherBytes
from ..state.offsets import ByteRange, Offset, OffsetRange
from ..state.routing import Isolation
from ..state.segment import AbortedRange, RemoteSegment
from ..storage.crc32c import extended
from ..storage.object_store import MIB
from ..storage.segment.buffers import Buffers, Window
from ..storage.segment.encryption import KeyUnwrapper
from ..storage.segment.in_order import Work, in_order
from ..storage.segment.log_chunks import WINDOW_BYTES, NearStore, ObjectReads
from ..storage.segment.reader import PARALLEL
from .batch_order import BatchOrder
from .locate import locate_batch, proven_batch, unproven
from .proven_log import AnotherLog, another_log, is_right
from .remote import aborted_of, open_segment, touching
from .window_batches import BATCH_PREFIX, batch_size

NEAR_BYTES = 4 * MIB
BEYOND_BYTES = 128 * 1024
"""Read behind the chunk in which the last batch wanted begins: most batches end there."""
_ROWS = 4096


@dataclass(frozen=True, slots=True)
class PartPiece:
    """Whole batches of one part, at least one, that hold offsets from ``offset`` to below ``next_offset``."""

    part: int
    data: memoryview
    aborted: tuple[AbortedRange, ...]
    offset: Offset
    next_offset: Offset
    position: int
    """Of the plain log, where the data begins."""


@dataclass(frozen=True, slots=True)
class RemoteReads:
    """How parts are read. ``window_bytes``: of a request, the most."""

    store: ObjectReads
    keys: KeyUnwrapper | None
    isolation: Isolation
    window_bytes: int = WINDOW_BYTES


Part = tuple[RemoteSegment, OffsetRange]
_Loaded = tuple["_Reading", Window, bool]


def read_parts(parts: Sequence[Part], reads: RemoteReads) -> Generator[PartPiece, None, None]:
    """Whole batches with the offsets of each part, part by part. An error comes after the pieces before it.

    Raises ObjectNotFound, CorruptData (also where a marker contradicts the segment's aborted ranges), Unavailable;
    AnotherLog for a part that is a whole segment.
    """
    parallel = 1 if isinstance(reads.store, NearStore) else PARALLEL
    buffers = Buffers(parallel + 1)
    opening = in_order((partial(_Reading, n, part, reads, buffers) for n, part in enumerate(parts)), parallel)
    with closing(opening), closing(in_order(_loads(opening), parallel)) as loaded:
        for reading, window, last in loaded:
            yield from reading.take(window)
            del window  # its memory is for the next one
            if last:
                yield from reading.rest()


def _loads(opening: Iterator[_Reading]) -> Iterator[Work[_Loaded]]:
    try:
        for reading in opening:
            yield from reading.loads()
    except Exception as error:  # whatever it is: behind what was begun before it
        yield partial(_raise, error)


def _raise(error: Exception, left: threading.Event) -> _Loaded:
    raise error


class _Reading:
    """One part: `loads` are done by whoever, in this order; then `take` what they loaded, and `rest` at their end."""

    def __init__(self, number: int, part: Part, reads: RemoteReads, buffers: Buffers, left: threading.Event) -> None:
        self._number, (self._segment, self._offsets) = number, part
        self._isolation, self._buffers = reads.isolation, buffers
        self._reader = reader = open_segment(reads.store, self._segment, reads.keys, None)
        self._window_bytes = min(reads.window_bytes, NEAR_BYTES if isinstance(reads.store, NearStore) else WINDOW_BYTES)
        self._aborted = aborted_of(self._segment, reader, self._offsets, reads.isolation)
        self._source = reader.log.key
        self._markers = MarkerCheck(AbortFilter(self._aborted), self._source)
        self._order = BatchOrder(reader, self._segment)
        self._table = np.empty((_ROWS, kernels.HEADER_COLUMNS), np.int64)
        self._next = self._offsets.start
        self._finished = False
        whole = self._offsets == self._segment.offsets and not reader.log.checksums
        self._crc = 0 if whole else None
        """Of the plain log as far as it is taken, where all of it is read and its chunks have no checksums."""
        self._first, self._position = self._begin(left)
        self._loaded = self._position
        """The plain log is taken up to here."""
        self._tails: list[bytes] = []
        """Its last bytes, from ``_position`` on: the beginning of a batch that has ``_missing`` bytes more, or more."""
        self._missing = 0

    def _begin(self, left: threading.Event) -> tuple[Window | None, int]:
        """Where a batch begins, at or before the one with the first offset, and what was read to find it."""
        reader, base = self._reader, self._segment.offsets.start
        chunk_id = reader.chunk_for_offset(self._offsets.start)
        if chunk_id:
            start = chunk_id * reader.manifest.chunks.chunk_bytes
            window = self._window(next(reader.ranges(start, reader.plain_bytes, self._window_bytes)), left)
            found = proven_batch(reader, chunk_id, window.data, self._source)
            if found is not None:
                return window, start + found
        return None, locate_batch(reader, base, self._offsets.start, self._source)

    def loads(self) -> Iterator[Work[_Loaded]]:
        """The windows that will be wanted; the last one says so."""
        first, self._first = self._first, None
        position = self._position if first is None else first.start + len(first.data)
        ranges = [*self._reader.ranges(position, self._stop(position), self._window_bytes)]
        if first is not None:
            yield partial(self._given, first, not ranges)
            del first
        for each in ranges:
            if self._finished:
                return
            yield partial(self._load, each, each is ranges[-1])

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
        """What lies behind this byte is wanted only if a batch is larger, or the chunk table is not right."""
        last = self._reader.chunk_for_offset(self._offsets.end)
        if last is None:
            return self._reader.plain_bytes
        chunk = self._reader.manifest.chunks.chunk(last)
        return max(position, min(chunk.plain_stop + BEYOND_BYTES, self._reader.plain_bytes))

    def rest(self) -> Iterator[PartPiece]:
        """What the windows did not have: nothing is believed to be the end but the last offset, and the log's end."""
        for each in self._reader.ranges(self._loaded, self._reader.plain_bytes, min(self._window_bytes, MIB)):
            if self._finished:
                return
            yield from self.take(self._window(each, threading.Event()))
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
        """The batches that end in it. Those at the end of another log are not handed out, where each is right."""
        data = self._joined(window)
        if data is None:
            return
        wrong = self._another_log()
        if wrong is None or not is_right(data, self._source):  # whoever decodes finds the wrong batch
            yield from self._pieces(data)
            return
        held = list[PartPiece]()
        try:
            for piece in self._pieces(data):
                held.append(piece)
        except CorruptData:  # it says more
            yield from held
            raise
        raise wrong

    def _pieces(self, data: memoryview) -> Iterator[PartPiece]:
        address = np.frombuffer(data, np.uint8).ctypes.data
        at, after, count = 0, -1, _ROWS
        while at < len(data) and count == _ROWS:
            count, at, after = kernels.scan(address, len(data), at, after, 0, self._table)
            pieces = [*self._piece(data, self._table[:count])] if count else []
            if self._order.has_gaps and not self._finished and count < _ROWS and at < len(data):
                self._missing_of(data[at:], after, self._position + at)  # only the batch behind tells of a moved one
            yield from pieces
            del pieces
            if self._finished:
                return
        self._position += at
        self._tails, self._missing = [bytes(data[at:])] if at < len(data) else [], 0
        if self._tails:
            self._missing = self._missing_of(data[at:], after, self._position)

    def _joined(self, window: Window) -> memoryview | None:
        """The window behind the tails; None while their batch is not whole, and when nothing more is wanted."""
        if self._finished:
            return None
        skipped = self._loaded - window.start  # chunks are loaded whole
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
        """How many bytes the batch that begins here goes on for, at least. Raises CorruptData if none can."""
        wrong = iter_batches(
            tail, source=self._source, position=position, verify_crc=False, partial_tail_ok=True, after=after
        )
        if next(wrong, None) is not None:
            raise CorruptData("not a record batch", file=self._source, position=position)
        if len(tail) < BATCH_PREFIX.size:
            return 1
        size = batch_size(tail)
        if not BATCH_PREFIX.size < size <= self._reader.plain_bytes - position:
            raise self._inside_a_batch()
        return max(1, size - len(tail))

    def _piece(self, data: memoryview, rows: Table) -> Iterator[PartPiece]:
        """Of the batches in ``rows`` those that are wanted, checked."""
        last, end = rows[:, kernels.LAST], self._offsets.end
        stop = int(np.searchsorted(last, end))
        self._check_order(data, rows[: stop + 1])
        if stop < len(rows):
            self._finished = True
            stop += int(rows[stop, kernels.BASE] <= end)
        shown = rows[int(np.searchsorted(last, self._offsets.start)) : stop]
        if not len(shown):
            return
        if self._isolation is Isolation.READ_COMMITTED:
            for at in shown[(shown[:, kernels.ATTRIBUTES] & (TRANSACTIONAL | CONTROL)) != 0, kernels.POSITION].tolist():
                header = read_header(data, at, self._source, self._position)
                self._markers.add(header, data, self._position)
        first, final = shown[0], shown[-1]
        touched = OffsetRange(Offset(int(first[kernels.BASE])), Offset(int(final[kernels.LAST])))
        begin, self._next = self._next, Offset(min(touched.end, end) + 1)
        whole = data[int(first[kernels.POSITION]) : int(final[kernels.POSITION] + final[kernels.SIZE])]
        position = self._position + int(first[kernels.POSITION])
        yield PartPiece(self._number, whole, touching(self._aborted, touched), begin, self._next, position)

    def _check_order(self, data: memoryview, rows: Table) -> None:
        positions = rows[:, kernels.POSITION] + self._position
        columns = (rows[:, each] for each in (kernels.BASE, kernels.LAST, kernels.SIZE, kernels.EPOCH))
        if self._order.holds(positions, *columns):
            return
        for at in rows[:, kernels.POSITION].tolist():  # one of them says what is wrong
            self._order.check(read_header(data, at, self._source, self._position))

    def _inside_a_batch(self) -> CorruptData:
        return CorruptData("the log ends inside a batch", file=self._source, position=self._position)
