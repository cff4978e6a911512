"""Chunks kept by readers, in two levels: plain in memory, as they are stored on disk. Each is loaded once at a time.

memory   plain bytes, least recently used out first, bounded by bytes
disk     `disk_cache.py`; what was encrypted in the store is encrypted there too
store    adjacent chunks that neither has, by one request
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from contextlib import closing
from dataclasses import dataclass

from ...state.errors import CorruptData
from .chunks import Chunk
from .disk_cache import DiskCache
from .in_order import Stopped
from .log_chunks import LogChunks, windows

Name = tuple[str, int]
"""Whole object key, chunk id. No object name is ever used twice."""
_Claims = dict[Name, "Future[bytes]"]


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """Since the start. A hit of memory: the chunk was there, or somebody was loading it. ``bytes`` are held now."""

    hits: int
    misses: int
    evictions: int
    bytes: int


class ChunkCache:
    """At most ``max_bytes`` of chunks, or the newest one when that is larger; beside them what is being loaded: a
    window (`log_chunks.WINDOW_BYTES`), stored and plain, a load. Thread-safe. A failed load is not kept.
    """

    def __init__(self, max_bytes: int, disk: DiskCache | None = None) -> None:
        self.max_bytes, self.disk = max_bytes, disk
        self._chunks: OrderedDict[Name, bytes] = OrderedDict()
        self._loading: _Claims = {}
        self._unused: dict[Name, int] = {}
        self._lock = threading.Lock()
        self._held = self._unused_held = self._hits = self._misses = self._evictions = 0

    def window(self, source: LogChunks, chunks: Sequence[Chunk], stop: threading.Event | None = None) -> list[bytes]:
        """Plain chunks that lie side by side: one request for each run that nobody has.

        Who waits for a load shares its result, or its error; an interrupted one is taken over.
        """
        found: list[bytes | Future[bytes]] = []
        mine: _Claims = {}
        with self._lock:
            for chunk in chunks:
                name = (source.key, chunk.id)
                known = self._known(name)
                if known is None:
                    self._misses += 1
                    known = mine[name] = self._loading[name] = Future()
                else:
                    self._hits += 1
                found.append(known)
        if mine:
            self._load(source, [chunk for chunk in chunks if (source.key, chunk.id) in mine], mine, stop)
        # own loads are over: nobody waits for one who waits
        return [
            each if isinstance(each, bytes) else self._joined(source, chunk, each, stop)
            for chunk, each in zip(chunks, found, strict=True)
        ]

    def held(self, key: str, chunks: Sequence[Chunk]) -> list[bytes] | None:
        """Plain chunks, all of which are in memory; None: they are not, and nobody waits for them."""
        with self._lock:
            if not all((key, chunk.id) in self._chunks for chunk in chunks):
                return None
            self._hits += len(chunks)
            return [data for chunk in chunks if isinstance(data := self._known((key, chunk.id)), bytes)]

    def load_ahead(self, source: LogChunks, chunks: Sequence[Chunk], stop: threading.Event) -> int:
        """Loads those of the chunks that are neither here nor being loaded; their plain bytes.

        Raises what loading raises; a reader that waits for one of them then loads it itself.
        """
        mine: _Claims = {}
        with self._lock:
            for chunk in chunks:
                name = (source.key, chunk.id)
                if name not in self._chunks and name not in self._loading:
                    mine[name] = self._loading[name] = Future()
        wanted = [chunk for chunk in chunks if (source.key, chunk.id) in mine]
        if wanted:
            self._load(source, wanted, mine, stop, ahead=True)
        return sum(chunk.plain_size for chunk in wanted)

    def knows(self, key: str, chunk_id: int) -> bool:
        """Whether the chunk is in memory or being loaded."""
        with self._lock:
            return (key, chunk_id) in self._chunks or (key, chunk_id) in self._loading

    @property
    def unused_bytes(self) -> int:
        """Loaded ahead, held, and asked for by nobody yet."""
        return self._unused_held

    @property
    def counts(self) -> CacheCounts:
        """Of the memory; the disk has its own."""
        with self._lock:
            return CacheCounts(self._hits, self._misses, self._evictions, self._held)

    def close(self) -> None:
        """Lets the disk go; reads still work, from memory and store. Idempotent."""
        if self.disk is not None:
            self.disk.close()

    def _known(self, name: Name) -> bytes | Future[bytes] | None:
        held = self._chunks.get(name)
        if held is None:
            return self._loading.get(name)
        self._chunks.move_to_end(name)
        self._unused_held -= self._unused.pop(name, 0)
        return held

    def _joined(self, source: LogChunks, chunk: Chunk, loading: Future[bytes], stop: threading.Event | None) -> bytes:
        try:
            data = loading.result()
        except CancelledError:
            return self.window(source, (chunk,), stop)[0]  # who loaded was interrupted, not answered
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
    ) -> None:
        """Every claim is answered when this ends: with the chunk, the error, or (interrupted) by being given up."""
        failure: Exception | None = None
        try:
            missing = [chunk for chunk in chunks if not self._from_disk(source, chunk, claims, ahead)]
            for window in windows(missing):
                with closing(source.stored(window, stop)) as pieces:
                    for chunk, stored in zip(window, pieces, strict=True):
                        self._answer(source, chunk, claims, source.plain(chunk, stored), ahead)
                        if self.disk is not None:
                            self.disk.put(source.key, chunk.id, stored)
        except Exception as error:
            failure = error
            raise
        finally:
            shared = None if ahead or isinstance(failure, Stopped) else failure
            self._give_up(claims, shared)

    def _from_disk(self, source: LogChunks, chunk: Chunk, claims: _Claims, ahead: bool) -> bool:
        stored = None if self.disk is None else self.disk.get(source.key, chunk.id, chunk.stored_size)
        if self.disk is None or stored is None:
            return False
        try:
            plain = source.plain(chunk, stored)
        except CorruptData:  # only what opened was put there: the store decides, not this copy
            self.disk.drop_damaged(source.key, chunk.id, chunk.stored_size)
            return False
        self._answer(source, chunk, claims, plain, ahead)
        return True

    def _answer(self, source: LogChunks, chunk: Chunk, claims: _Claims, data: bytes, ahead: bool) -> None:
        name = (source.key, chunk.id)
        with self._lock:
            self._chunks[name] = data
            self._held += len(data)
            if ahead:
                self._unused[name] = len(data)
                self._unused_held += len(data)
            while self._held > self.max_bytes and len(self._chunks) > 1:
                oldest, dropped = self._chunks.popitem(last=False)
                self._held -= len(dropped)
                self._unused_held -= self._unused.pop(oldest, 0)
                self._evictions += 1
            del self._loading[name]
        claims.pop(name).set_result(data)

    def _give_up(self, claims: _Claims, error: Exception | None) -> None:
        with self._lock:
            for name in claims:
                del self._loading[name]
        for loading in claims.values():
            if error is None:
                loading.cancel()
            else:
                loading.set_exception(error)
