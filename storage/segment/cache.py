"""Caches chunks for readers: plain in memory, as stored on disk. A chunk is loaded by only one read at a time.

memory   plain bytes, bounded by bytes, least recently used dropped first; for a compressed chunk with only small reads:
         the beginning that they used, and its stored bytes (`begun_chunk.py`)
disk     `disk_cache.py`; chunks that are encrypted in the store are encrypted there too
store    adjacent chunks that neither level has, by one request
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
"""Whole object key, chunk id. No object name is ever used twice."""
Held = Bytes | BegunChunk
_Claims = dict[Name, "Future[Held]"]
OPEN = 4
"""Number of partly unpacked chunks whose unpacking can continue; for others it starts again."""

KEPT = 2
"""Number of dropped chunks whose memory is used again (`ChunkMemory`)."""


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """Counts since the start. A hit: the chunk was in memory or being loaded. ``bytes``: those in memory now."""

    hits: int
    misses: int
    evictions: int
    bytes: int


class ChunkCache:
    """Keeps at most ``max_bytes`` of chunks, or the newest one when that is larger. More memory is used for loads,
    stored and plain (a window (`log_chunks.WINDOW_BYTES`) per read, one chunk per load ahead), and for `KEPT` dropped
    chunks. Thread-safe. A failed load is not kept.
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
        """Return adjacent plain chunks: each run that is not cached costs one request. ``upto``: bytes needed of the
        last one, which need not be opened further.

        A read that waits for another's load shares its result or its error, and takes over an interrupted load.
        """
        entries: list[Held | Future[Held]] = []
        mine: _Claims = {}
        wants = _wants(source, chunks, upto)
        with self._lock:
            for name, want in wants.items():
                entry = self._known(name, want)
                if name in self._chunks or entry is not None:
                    self._hits += 1  # a chunk that is only opened further needs no request
                else:
                    self._misses += 1
                if entry is None:
                    entry = mine[name] = self._loading[name] = Future()
                entries.append(entry)
        if mine:
            own_chunks = [chunk for chunk in chunks if (source.key, chunk.id) in mine]
            self._load(source, own_chunks, mine, stop, upto=wants[source.key, own_chunks[-1].id])
        # own loads are over: no two reads wait for each other
        return [
            self._joined(source, chunk, entry, stop, want) if isinstance(entry, Future) else entry
            for chunk, entry, want in zip(chunks, entries, wants.values(), strict=True)
        ]

    def held(self, key: str, ids: Iterable[int]) -> list[Bytes] | None:
        """Return plain chunks if all of them are in memory from end to end; else None. Never waits."""
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
        """Load those of the chunks that are neither in memory nor being loaded; return their plain bytes.

        Raises what loading raises; a reader that waits for one of them then loads it itself.
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
        """Bytes that were loaded ahead and are held, but were not read yet."""
        return self._unused_held

    @property
    def evictions(self) -> int:
        """Evictions so far. Until this changes, a chunk that was in memory whole is there with the same bytes."""
        return self._evictions

    @property
    def counts(self) -> CacheCounts:
        """The counts of the memory; the disk has its own."""
        with self._lock:
            return CacheCounts(self._hits, self._misses, self._evictions, self._held)

    def close(self) -> None:
        """Close the disk cache. Reads still work, from memory and store. Idempotent."""
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
        except CancelledError:  # the read that loaded was interrupted
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
        """Load the chunks. At the end, every claim has the chunk or the error, or is cancelled (if interrupted)."""
        failure: Exception | None = None
        try:
            wants = _wants(source, chunks, upto)
            missing = [
                chunk
                for chunk, want in zip(chunks, wants.values(), strict=True)
                if not self._from_memory(source, chunk, claims, want)
                and not self._from_disk(source, chunk, claims, ahead)
            ]
            for window in windows(missing, inf):  # each run of them: the caller decides how many it requests at once
                with closing(source.stored(window, stop, self._memory)) as pieces:
                    for chunk, stored in zip(window, pieces, strict=True):
                        # the disk keeps only chunks that were opened to their end
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
        """Return the chunk opened as far as ``want``, by whole blocks."""
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
        """Return whether its beginning is in memory, and open it further then. Only one read at a time claims it."""
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
        except CorruptData:  # the copy in memory may be damaged, and not the object: the store decides
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
        except CorruptData:  # only chunks that opened were put there: the store decides, not this copy
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
    """Return how many bytes of each chunk are needed, in order: all, but ``upto`` of the last one (None: all)."""
    wants = {(source.key, chunk.id): chunk.plain_size for chunk in chunks}
    if upto is not None:
        wants[source.key, chunks[-1].id] = upto
    return wants


def _reaches(held: Held, want: int) -> bool:
    return not isinstance(held, BegunChunk) or held.size >= want


def _bytes_of(held: Held) -> int:
    return held.size + len(held.stored) if isinstance(held, BegunChunk) else len(held)
