"""Caches chunks for readers, in three levels. Only one read at a time loads a chunk.

memory   plain bytes, up to a limit; the least recently used chunks are dropped first. Of a compressed chunk with only
         small reads: the part from its beginning that they used, and its stored bytes
disk     stored bytes, so encrypted chunks are encrypted on disk too (`disk_cache.py`)
store    adjacent chunks that neither memory nor disk has are read by one request
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import closing, suppress
from dataclasses import dataclass
from math import inf

from ...state.errors import CorruptData
from .buffers import Bytes, ChunkMemory
from .chunks import Chunk
from .disk_cache import DiskCache
from .in_order import Stopped
from .log_chunks import LogChunks, windows

Name = tuple[str, int]
"""The object key and the chunk id. No object key is ever used twice."""
_Claims = dict[Name, "Future[Held]"]
KEPT = 2
"""Number of dropped chunks whose memory waits for reuse (`ChunkMemory`)."""


@dataclass(frozen=True, slots=True)
class BegunChunk:
    """The first plain bytes of a compressed chunk, and all its stored bytes for further reads."""

    data: bytes
    stored: Bytes

    def __len__(self) -> int:
        return len(self.data) + len(self.stored)


Held = Bytes | BegunChunk


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
        self._loading: _Claims = {}
        self._unused: dict[Name, int] = {}
        self._lock = threading.Lock()
        self._memory = ChunkMemory(KEPT)
        self._held = self._unused_held = self._hits = self._misses = self._evictions = 0

    def window(
        self, source: LogChunks, chunks: Sequence[Chunk], stop: threading.Event | None = None, upto: int | None = None
    ) -> list[Bytes]:
        """Return adjacent plain chunks. Each run of chunks that is not cached costs one request. ``upto`` is the number
        of bytes that are needed of the last chunk; it may be returned unpacked only that far.

        A read that waits for the load of another read gets the same chunk or error. If that load was interrupted, the
        waiting read loads the chunk itself. Raises the errors of `LogChunks.stored` and `LogChunks.plain`.
        """
        entries: list[Bytes | Future[Held]] = []
        mine: _Claims = {}
        wants = {chunk.id: chunk.plain_size for chunk in chunks}
        if upto is not None:
            wants[chunks[-1].id] = upto
        with self._lock:
            for chunk in chunks:
                name = (source.key, chunk.id)
                held = self._chunks.get(name)
                entry = _reaching(held, wants[chunk.id]) or self._loading.get(name)
                if held is None and entry is None:
                    self._misses += 1
                else:
                    self._hits += 1  # to unpack more of a chunk in memory, no request is needed
                    self._asked_for(name)
                if entry is None:
                    entry = mine[name] = self._loading[name] = Future()
                entries.append(entry)
        self._load(source, chunks, mine, stop, wants)
        # the loads of this read have ended, so no two reads wait for each other
        return [
            self._joined(source, chunk, entry, stop, wants[chunk.id]) if isinstance(entry, Future) else entry
            for chunk, entry in zip(chunks, entries, strict=True)
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
        size = sum(chunk.plain_size for chunk in chunks if (source.key, chunk.id) in mine)
        self._load(source, chunks, mine, stop, {}, ahead=True)
        return size

    def forget(self, key: str, chunks: Iterable[Chunk]) -> None:
        """Drop the chunks from disk and memory, because the store has other bytes."""
        for chunk in chunks:
            if self.disk is not None:
                self.disk.drop(key, chunk.id, chunk.stored_size)
            self._forget((key, chunk.id))

    def knows(self, key: str, chunk_id: int) -> bool:
        with self._lock:
            return (key, chunk_id) in self._chunks or (key, chunk_id) in self._loading

    @property
    def unused_bytes(self) -> int:
        """Bytes of chunks in memory that were loaded ahead and not read yet."""
        return self._unused_held

    @property
    def counts(self) -> CacheCounts:
        """The counts of the cache in memory. `DiskCache.counts` has those of the disk."""
        with self._lock:
            return CacheCounts(self._hits, self._misses, self._evictions, self._held)

    def close(self) -> None:
        """Close the disk cache. Reads still work, from memory and the store. Idempotent."""
        if self.disk is not None:
            self.disk.close()

    def _asked_for(self, name: Name) -> None:
        if name in self._chunks:
            self._chunks.move_to_end(name)
        self._unused_held -= self._unused.pop(name, 0)

    def _joined(
        self, source: LogChunks, chunk: Chunk, loading: Future[Held], stop: threading.Event | None, want: int
    ) -> Bytes:
        with suppress(CancelledError):  # the read that loaded the chunk was interrupted
            data = _reaching(loading.result(), want)
            if data is not None:
                with self._lock:
                    self._asked_for((source.key, chunk.id))
                return data
        return self.window(source, (chunk,), stop, want)[0]

    def _load(
        self,
        source: LogChunks,
        chunks: Sequence[Chunk],
        claims: _Claims,
        stop: threading.Event | None,
        wants: Mapping[int, int],
        ahead: bool = False,
    ) -> None:
        """Load the claimed chunks. In the end, every claim has its chunk or the error, or is cancelled after an
        interrupt. ``wants``: the bytes that are needed of a chunk, by its id, if not all."""
        failure: Exception | None = None
        wants = wants if self.disk is None else {}  # the disk keeps only chunks that could be unpacked completely
        try:
            missing = [
                chunk
                for chunk in chunks
                if (source.key, chunk.id) in claims
                and not self._from_memory(source, chunk, claims, wants)
                and not self._from_disk(source, chunk, claims, ahead)
            ]
            for window in windows(missing, inf):  # one window per run of adjacent chunks: the caller bounds its size
                with closing(source.stored(window, stop, self._memory)) as pieces:
                    for chunk, stored in zip(window, pieces, strict=True):
                        self._answer(source, chunk, claims, _opened(source, chunk, stored, wants.get(chunk.id)), ahead)
                        if self.disk is not None:
                            self.disk.put(source.key, chunk.id, stored)
        except Exception as error:
            failure = error
            raise
        finally:
            self._give_up(claims, None if ahead or isinstance(failure, Stopped) else failure)

    def _from_memory(self, source: LogChunks, chunk: Chunk, claims: _Claims, wants: Mapping[int, int]) -> bool:
        """Unpack more of a chunk whose beginning is in memory. Return False if the chunk must be loaded."""
        name = (source.key, chunk.id)
        with self._lock:
            held = self._chunks.get(name)
        if not isinstance(held, BegunChunk):
            return False
        try:  # again from the beginning, at least twice as far: so many small reads unpack a chunk few times
            want = max(wants.get(chunk.id, chunk.plain_size), 2 * len(held.data))
            data = _opened(source, chunk, held.stored, want)
        except CorruptData:  # perhaps only the copy in memory is damaged: read the store
            with self._lock:
                self._held -= len(self._chunks.pop(name, b""))
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
            self._held += len(data) - len(self._chunks.pop(name, b""))
            self._chunks[name] = data
            if ahead:
                self._unused[name] = len(data)
                self._unused_held += len(data)
            while self._held > self.max_bytes and len(self._chunks) > 1:
                self._drop(next(iter(self._chunks)))
            del self._loading[name]
        claims.pop(name).set_result(data)

    def _forget(self, name: Name) -> None:
        with self._lock:
            if name in self._chunks:
                self._drop(name)

    def _drop(self, name: Name) -> None:
        """Drop a chunk from memory. The caller holds the lock."""
        self._held -= len(self._chunks.pop(name))
        self._unused_held -= self._unused.pop(name, 0)
        self._evictions += 1

    def _give_up(self, claims: _Claims, error: Exception | None) -> None:
        with self._lock:
            for name in claims:
                del self._loading[name]
        for loading in claims.values():
            if error is None:
                loading.cancel()
            else:
                loading.set_exception(error)


def _opened(source: LogChunks, chunk: Chunk, stored: Bytes, want: int | None) -> Held:
    """Return the chunk, unpacked to its first ``want`` bytes if that is possible and useful."""
    data = source.beginning(chunk, stored, want) if want is not None and want < chunk.plain_size else None
    return source.plain(chunk, stored) if data is None else BegunChunk(data, stored)


def _reaching(held: Held | None, want: int) -> Bytes | None:
    """Return the plain bytes of a chunk if at least ``want`` of them are there."""
    if isinstance(held, BegunChunk):
        return held.data if len(held.data) >= want else None
    return held
