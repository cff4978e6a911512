"""Caches chunks for readers, in three levels. Only one read at a time loads a chunk.

memory   plain bytes, up to a limit; the least recently used chunks are dropped first. Of a compressed chunk with only
         small reads: the part from its beginning that they used, and its stored bytes (`begun_chunk.py`)
disk     stored bytes, so encrypted chunks are encrypted on disk too (`disk_cache.py`)
store    adjacent chunks that neither memory nor disk has are read by one request
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import closing
from dataclasses import dataclass
from math import inf

from ...state.errors import CorruptData
from .begun_chunk import STEP_BYTES, BegunChunk, Unpacking
from .buffers import Bytes, ChunkMemory
from .chunks import Chunk
from .disk_cache import DiskCache
from .in_order import Stopped
from .log_chunks import LogChunks, windows

Name = tuple[str, int]
"""The object key and the chunk id. No object key is ever used twice."""
Held = Bytes | BegunChunk
_Claims = dict[Name, "Future[Held]"]
OPEN = 4
"""Number of partly unpacked chunks whose unpacking can continue. For other chunks, unpacking starts again."""

KEPT = 2
"""Number of dropped chunks whose memory waits for reuse (`ChunkMemory`)."""


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """Counts since the start. A hit means that the chunk was in memory or being loaded. ``bytes`` are in memory now."""

    hits: int
    misses: int
    evictions: int
    bytes: int


class ChunkCache:
    """Keeps at most ``max_bytes`` of chunks, or the newest chunk if it alone is larger. Thread-safe. Failed loads are
    not kept. Additional memory: for each read a window, stored and plain (`log_chunks.WINDOW_BYTES`), for each load
    ahead one chunk, and `KEPT` dropped chunks.
    """

    def __init__(self, max_bytes: int, disk: DiskCache | None = None) -> None:
        self.max_bytes, self.disk = max_bytes, disk
        self._chunks: OrderedDict[Name, Held] = OrderedDict()
        self._open: OrderedDict[Name, Unpacking] = OrderedDict()
        self._loading: _Claims = {}
        self._unused: dict[Name, int] = {}
        self._lock = threading.Lock()
        self._memory = ChunkMemory(KEPT)
        self._held = self._unused_held = self._hits = self._misses = self._evictions = 0

    def window(
        self,
        source: LogChunks,
        chunks: Sequence[Chunk],
        stop: threading.Event | None = None,
        upto: int | None = None,
    ) -> list[Held]:
        """Return adjacent plain chunks. Each run of chunks that is not cached costs one request. ``upto`` is the number
        of bytes that are needed of the last chunk; it may be returned unpacked only that far.

        A read that waits for the load of another read gets the same chunk or error. If that load was interrupted, the
        waiting read loads the chunk itself. Raises the errors of `LogChunks.stored` and `LogChunks.plain`.
        """
        entries: list[Held | Future[Held]] = []
        mine: _Claims = {}
        wants = _wants(source, chunks, upto)
        with self._lock:
            for name, want in wants.items():
                entry = self._known(name, want)
                if name in self._chunks or entry is not None:
                    self._hits += 1  # to unpack more of a chunk in memory, no request is needed
                else:
                    self._misses += 1
                if entry is None:
                    entry = mine[name] = self._loading[name] = Future()
                entries.append(entry)
        if mine:
            own_chunks = [chunk for chunk in chunks if (source.key, chunk.id) in mine]
            self._load(source, own_chunks, mine, stop, upto=wants[source.key, own_chunks[-1].id])
        # the loads of this read have ended, so no two reads wait for each other
        return [
            self._joined(source, chunk, entry, stop, want) if isinstance(entry, Future) else entry
            for chunk, entry, want in zip(chunks, entries, wants.values(), strict=True)
        ]

    def held(self, key: str, ids: Iterable[int]) -> list[Bytes] | None:
        """Return plain chunks if all of them are in memory completely, else None. Never waits for a load."""
        pieces = list[Bytes]()
        with self._lock:
            for chunk_id in ids:
                data = self._chunks.get((key, chunk_id))
                if data is None or isinstance(data, BegunChunk):
                    return None
                self._asked_for((key, chunk_id))
                pieces.append(data)
            self._hits += len(pieces)
        return pieces

    def load_ahead(self, source: LogChunks, chunks: Sequence[Chunk], stop: threading.Event) -> int:
        """Load the chunks that are neither in memory nor being loaded. Return the number of their plain bytes.

        Raises the errors of `LogChunks`. A reader that waits for a chunk then loads that chunk itself.
        """
        mine: _Claims = {}
        with self._lock:
            for chunk in chunks:
                name = (source.key, chunk.id)
                if name not in self._chunks and name not in self._loading:
                    mine[name] = self._loading[name] = Future()
        own_chunks = [chunk for chunk in chunks if (source.key, chunk.id) in mine]
        if own_chunks:
            self._load(source, own_chunks, mine, stop, ahead=True)
        return sum(chunk.plain_size for chunk in own_chunks)

    def knows(self, key: str, chunk_id: int) -> bool:
        """Return whether the chunk is in memory or being loaded."""
        with self._lock:
            return (key, chunk_id) in self._chunks or (key, chunk_id) in self._loading

    @property
    def unused_bytes(self) -> int:
        """Bytes of chunks in memory that were loaded ahead and not read yet."""
        return self._unused_held

    @property
    def evictions(self) -> int:
        """Evictions so far. Until this number changes, a chunk that is completely in memory stays there, unchanged."""
        return self._evictions

    @property
    def counts(self) -> CacheCounts:
        """The counts of the cache in memory. `DiskCache.counts` has those of the disk."""
        with self._lock:
            return CacheCounts(self._hits, self._misses, self._evictions, self._held)

    def close(self) -> None:
        """Close the disk cache. Reads still work, from memory and the store. Idempotent."""
        if self.disk is not None:
            self.disk.close()

    def _known(self, name: Name, want: int) -> Held | Future[Held] | None:
        held = self._chunks.get(name)
        if held is None or not _reaches(held, want):
            return self._loading.get(name)
        self._asked_for(name)
        return held

    def _asked_for(self, name: Name) -> None:
        self._chunks.move_to_end(name)
        self._unused_held -= self._unused.pop(name, 0)

    def _joined(
        self, source: LogChunks, chunk: Chunk, loading: Future[Held], stop: threading.Event | None, want: int
    ) -> Held:
        try:
            data = loading.result()
        except CancelledError:  # the read that loaded the chunk was interrupted
            return self.window(source, (chunk,), stop, want)[0]
        if not _reaches(data, want):
            return self.window(source, (chunk,), stop, want)[0]
        with self._lock:
            self._unused_held -= self._unused.pop((source.key, chunk.id), 0)
        return data

    def _load(
        self,
        source: LogChunks,
        chunks: Sequence[Chunk],
        claims: _Claims,
        stop: threading.Event | None,
        ahead: bool = False,
        upto: int | None = None,
    ) -> None:
        """Load the chunks. In the end, every claim has its chunk or the error, or is cancelled after an interrupt."""
        failure: Exception | None = None
        try:
            wants = _wants(source, chunks, upto)
            missing = [
                chunk
                for chunk, want in zip(chunks, wants.values(), strict=True)
                if not self._from_memory(source, chunk, claims, want)
                and not self._from_disk(source, chunk, claims, ahead)
            ]
            for window in windows(missing, inf):  # one window per run of adjacent chunks: the caller bounds its size
                with closing(source.stored(window, stop, self._memory)) as pieces:
                    for chunk, stored in zip(window, pieces, strict=True):
                        # the disk keeps only chunks that could be unpacked completely
                        want = wants[source.key, chunk.id] if self.disk is None else chunk.plain_size
                        self._answer(source, chunk, claims, self._opened(source, chunk, stored, want), ahead)
                        if self.disk is not None:
                            self.disk.put(source.key, chunk.id, stored)
        except Exception as error:
            failure = error
            raise
        finally:
            shared = None if ahead or isinstance(failure, Stopped) else failure
            self._give_up(claims, shared)

    def _opened(self, source: LogChunks, chunk: Chunk, stored: Bytes, want: int) -> Held:
        """Return the chunk, unpacked in whole blocks to at least ``want`` bytes."""
        size = -(-want // STEP_BYTES) * STEP_BYTES
        if size >= chunk.plain_size or (begun := source.unpacking(chunk, stored)) is None:
            return source.plain(chunk, stored)
        return self._further(source, chunk, begun, BegunChunk((), 0, stored), size)

    def _further(self, source: LogChunks, chunk: Chunk, begun: Unpacking, held: BegunChunk, size: int) -> BegunChunk:
        data = source.unpacked(chunk, begun, size - held.size)
        with self._lock:
            self._open[source.key, chunk.id] = begun
            while len(self._open) > OPEN:
                self._open.popitem(last=False)
        return BegunChunk((*held.pieces, data), size, held.stored)

    def _from_memory(self, source: LogChunks, chunk: Chunk, claims: _Claims, want: int) -> bool:
        """Unpack more of a chunk whose beginning is in memory. Return False if the chunk must be loaded."""
        name = (source.key, chunk.id)
        with self._lock:
            held, begun = self._chunks.get(name), self._open.pop(name, None)
        if not isinstance(held, BegunChunk):
            return False
        size = -(-want // STEP_BYTES) * STEP_BYTES
        data: Held
        try:
            if begun is None or size >= chunk.plain_size:
                data = self._opened(source, chunk, held.stored, want)
            else:
                data = self._further(source, chunk, begun, held, size)
        except CorruptData:  # perhaps only the copy in memory is damaged: read the store
            self._forget(name)
            return False
        self._answer(source, chunk, claims, data, ahead=False)
        return True

    def _from_disk(self, source: LogChunks, chunk: Chunk, claims: _Claims, ahead: bool) -> bool:
        stored = None if self.disk is None else self.disk.get(source.key, chunk.id, chunk.stored_size)
        if self.disk is None or stored is None:
            return False
        try:
            plain = source.plain(chunk, stored)
        except CorruptData:  # chunks on disk could be unpacked before, so this copy is damaged: read the store
            self.disk.drop_damaged(source.key, chunk.id, chunk.stored_size)
            return False
        self._answer(source, chunk, claims, plain, ahead)
        return True

    def _answer(self, source: LogChunks, chunk: Chunk, claims: _Claims, data: Held, ahead: bool) -> None:
        name = (source.key, chunk.id)
        with self._lock:
            self._held += _bytes_of(data) - _bytes_of(self._chunks.pop(name, b""))
            self._chunks[name] = data
            if ahead:
                self._unused[name] = _bytes_of(data)
                self._unused_held += _bytes_of(data)
            while self._held > self.max_bytes and len(self._chunks) > 1:
                oldest, dropped = self._chunks.popitem(last=False)
                self._open.pop(oldest, None)
                self._held -= _bytes_of(dropped)
                self._unused_held -= self._unused.pop(oldest, 0)
                self._evictions += 1
            del self._loading[name]
        claims.pop(name).set_result(data)

    def _forget(self, name: Name) -> None:
        with self._lock:
            self._held -= _bytes_of(self._chunks.pop(name, b""))

    def _give_up(self, claims: _Claims, error: Exception | None) -> None:
        with self._lock:
            for name in claims:
                del self._loading[name]
        for loading in claims.values():
            if error is None:
                loading.cancel()
            else:
                loading.set_exception(error)


def _wants(source: LogChunks, chunks: Sequence[Chunk], upto: int | None) -> dict[Name, int]:
    """Return the needed bytes of each chunk, in order: all, except ``upto`` bytes of the last one if it is not None."""
    wants = {(source.key, chunk.id): chunk.plain_size for chunk in chunks}
    if upto is not None:
        wants[source.key, chunks[-1].id] = upto
    return wants


def _reaches(held: Held, want: int) -> bool:
    return not isinstance(held, BegunChunk) or held.size >= want


def _bytes_of(held: Held) -> int:
    return held.size + len(held.stored) if isinstance(held, BegunChunk) else len(held)
