"""Chunks kept by readers, in two levels: plain in memory, as they are stored on disk. Each is loaded once at a time.

memory   plain bytes, least recently used out first, bounded by bytes; of a compressed chunk that only small reads
         wanted the beginning of, and what is stored of it (`begun_chunk.py`)
disk     `disk_cache.py`; what was encrypted in the store is encrypted there too
store    adjacent chunks that neither has, by one request
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
"""Chunks that are being unpacked bit by bit, of which the library's state is kept; of others it begins again."""

KEPT = 2
"""Chunks that were dropped, whose memory is used again (`ChunkMemory`)."""


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """Since the start. A hit of memory: the chunk was there, or somebody was loading it. ``bytes`` are held now."""

    hits: int
    misses: int
    evictions: int
    bytes: int


class ChunkCache:
    """At most ``max_bytes`` of chunks, or the newest one when that is larger; beside them what is being loaded, stored
    and plain: a window (`log_chunks.WINDOW_BYTES`) a read, one chunk a load ahead; and the memory of `KEPT` chunks
    for the next ones. Thread-safe. A failed load is not kept.
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
        """Plain chunks that lie side by side: one request for each run that nobody has. ``upto``: of the last one no
        more than these bytes are wanted, and it need not be opened further.

        Who waits for a load shares its result, or its error; an interrupted one is taken over.
        """
        found: list[Held | Future[Held]] = []
        mine: _Claims = {}
        wants = _wants(source, chunks, upto)
        with self._lock:
            for name, want in wants.items():
                known = self._known(name, want)
                if name in self._chunks or known is not None:
                    self._hits += 1  # what is there, and opened further, is no request
                else:
                    self._misses += 1
                if known is None:
                    known = mine[name] = self._loading[name] = Future()
                found.append(known)
        if mine:
            wanted = [chunk for chunk in chunks if (source.key, chunk.id) in mine]
            self._load(source, wanted, mine, stop, upto=wants[source.key, wanted[-1].id])
        # own loads are over: nobody waits for one who waits
        return [
            self._joined(source, chunk, each, stop, want) if isinstance(each, Future) else each
            for chunk, each, want in zip(chunks, found, wants.values(), strict=True)
        ]

    def held(self, key: str, ids: Iterable[int]) -> list[Bytes] | None:
        """Plain chunks, all of which are in memory from end to end; None: they are not, and nobody waits for them."""
        found = list[Bytes]()
        with self._lock:
            for each in ids:
                data = self._chunks.get((key, each))
                if data is None or isinstance(data, BegunChunk):
                    return None
                self._asked_for((key, each))
                found.append(data)
            self._hits += len(found)
        return found

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
    def evictions(self) -> int:
        """So far. While it does not change, a chunk that was in memory whole is there with the same bytes."""
        return self._evictions

    @property
    def counts(self) -> CacheCounts:
        """Of the memory; the disk has its own."""
        with self._lock:
            return CacheCounts(self._hits, self._misses, self._evictions, self._held)

    def close(self) -> None:
        """Lets the disk go; reads still work, from memory and store. Idempotent."""
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
        except CancelledError:  # who loaded was interrupted, not answered
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
        """Every claim is answered when this ends: with the chunk, the error, or (interrupted) by being given up."""
        failure: Exception | None = None
        try:
            wants = _wants(source, chunks, upto)
            missing = [
                chunk
                for chunk, want in zip(chunks, wants.values(), strict=True)
                if not self._from_memory(source, chunk, claims, want)
                and not self._from_disk(source, chunk, claims, ahead)
            ]
            for window in windows(missing, inf):  # each run of them: who asks says how many are asked for at once
                with closing(source.stored(window, stop, self._memory)) as pieces:
                    for chunk, stored in zip(window, pieces, strict=True):
                        # the disk keeps only what was opened to its end
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
        """As far as is wanted, by whole blocks."""
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
        """Whether its beginning is here: then it is opened further. A claim for it is had by one at a time."""
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
        except CorruptData:  # what came here may be damaged, and not what is there: the store decides
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
        except CorruptData:  # only what opened was put there: the store decides, not this copy
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
    """How many bytes of each are wanted, in order: of the last one ``upto``, None: all."""
    wants = {(source.key, chunk.id): chunk.plain_size for chunk in chunks}
    if upto is not None:
        wants[source.key, chunks[-1].id] = upto
    return wants


def _reaches(held: Held, want: int) -> bool:
    return not isinstance(held, BegunChunk) or held.size >= want


def _bytes_of(held: Held) -> int:
    return held.size + len(held.stored) if isinstance(held, BegunChunk) else len(held)
