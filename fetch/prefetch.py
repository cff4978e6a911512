"""Load the chunks that a sequential reader will request next into the chunk cache, also from the next segments.

    reader at │ chunks loaded, or being loaded │ chunks to load │      `budget` bytes of log, counted from the reader
              └───────────── budget ────────────────────────────┘

The reader joins a load that is running, and does a waiting load itself, so loading ahead never delays the reader. New
loads begin when half of the budget is used up. Each requests half of the budget, or the end of a segment: a request
costs as much CPU time as receiving 4 MiB. An error is only counted, because a reader that reads there gets it, too.
Memory: loaded data is in the cache and takes at most half of the cache, including the waiting and running loads.
Threads: at most `THREADS`, while there is something to load and `LINGER_S` longer. No caller waits for them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from ..state.offsets import OffsetRange
from ..state.segment import RemoteSegment
from ..storage.segment.cache import ChunkCache
from ..storage.segment.chunks import Chunk
from ..storage.segment.in_order import Stopped
from ..storage.segment.log_chunks import windows
from ..storage.segment.reader import SegmentReader

THREADS = 2
LINGER_S = 1.0
"""Seconds that a thread waits for more work: without it a steady reader starts more than a hundred threads a second."""

Following = Callable[[], Iterable[tuple[RemoteSegment, OffsetRange]]]
"""Returns the segments that a reader needs after the current one, in order, and the needed offsets of each segment."""
Open = Callable[[RemoteSegment], SegmentReader]


@dataclass(frozen=True, slots=True)
class _Job:
    """``size``: plain bytes that it will add to the cache. Only one job of a name waits or runs at a time."""

    name: Hashable
    size: int
    run: Callable[[], object]


class Prefetch:
    """Loads ``budget`` bytes ahead of each reader, fewer if the cache cannot hold them; 0: none. Thread-safe."""

    def __init__(self, cache: ChunkCache, open_segment: Open, budget: int) -> None:
        self._cache, self._open_segment = cache, open_segment
        self._limit = cache.max_bytes // 2
        self._budget = min(budget, self._limit)
        self._lock = threading.Lock()
        self._more = threading.Condition(self._lock)
        self._stop = threading.Event()
        self._jobs: deque[_Job] = deque()
        self._underway: set[Hashable] = set()
        self._pending = self._threads = self._waiting = 0
        self.bytes = self.failures = 0

    def after(self, reader: SegmentReader, position: int, offsets: OffsetRange, following: Following) -> None:
        """Load ahead of a sequential reader of ``offsets`` that reads up to byte ``position``. Never waits or fails."""
        if not self._budget or self._stop.is_set():
            return
        size = reader.manifest.chunks.chunk_bytes
        position = -(-position // size) * size  # the reader loads the chunk before that itself
        left = self._budget - self._ahead_in(reader, position, offsets, self._budget)
        if left > self._budget // 2:  # the end of the offsets needed of this segment is near
            name = ("following", reader.log.key, offsets.end, position)
            self._submit(_Job(name, 0, lambda: self._load_following(left, following())))

    def close(self) -> None:
        """Discard waiting loads. Running loads stop soon, by themselves. Idempotent."""
        self._stop.set()
        with self._lock:
            self._jobs.clear()
            self._more.notify_all()

    @property
    def idle(self) -> bool:
        """Return whether nothing waits and nothing runs."""
        with self._lock:
            return self._threads == self._waiting and not self._jobs

    def _ahead_in(self, reader: SegmentReader, position: int, offsets: OffsetRange, budget: int) -> int:
        """Load the missing chunks from ``position`` on. Return how many bytes of log they and the loaded ones cover."""
        last = reader.chunk_for_offset(offsets.end)
        last = reader.manifest.chunks.count - 1 if last is None else last
        stop = min(position + budget, reader.plain_bytes)
        chunks = [chunk for chunk in reader.chunks_of(position, stop) if chunk.id <= last] if position < stop else []
        covered = chunks[-1].plain_stop - position if chunks else 0
        missing = [chunk for chunk in chunks if not self._cache.knows(reader.log.key, chunk.id)]
        half = self._budget // 2
        if missing and missing[0].plain_start - position <= half:
            for window in windows(missing, half):
                size = sum(chunk.plain_size for chunk in window)
                cut_off = window[-1] is chunks[-1] and window[-1].id < last
                if not cut_off or size + window[-1].plain_size > half:  # else wait: the next read makes it larger
                    self._submit(self._load(reader, window))
        return covered

    def _load_following(self, budget: int, following: Iterable[tuple[RemoteSegment, OffsetRange]]) -> None:
        for segment, offsets in following:
            if budget <= 0 or self._stop.is_set():
                return
            reader = self._open_segment(segment)
            chunk_id = reader.chunk_for_offset(offsets.start) or 0
            budget -= self._ahead_in(reader, chunk_id * reader.manifest.chunks.chunk_bytes, offsets, budget)

    def _load(self, reader: SegmentReader, chunks: list[Chunk]) -> _Job:
        def run() -> None:
            loaded = self._cache.load_ahead(reader.log, chunks, self._stop)
            with self._lock:
                self.bytes += loaded

        return _Job((reader.log.key, chunks[0].id), sum(chunk.plain_size for chunk in chunks), run)

    def _submit(self, job: _Job) -> None:
        """Queue a job, unless it is underway already or its data has no room: then the next read submits it again."""
        with self._lock:
            full = job.size and self._pending + self._cache.unused_bytes + job.size > self._limit
            if full or job.name in self._underway or self._stop.is_set():
                return
            self._underway.add(job.name)
            self._pending += job.size
            self._jobs.append(job)
            if len(self._jobs) <= self._waiting:
                self._more.notify()
                return
            if self._threads == THREADS:
                return
            self._threads += 1
        threading.Thread(target=self._work, name="prefetch", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                self._waiting += 1
                self._more.wait_for(lambda: self._jobs or self._stop.is_set(), LINGER_S)
                self._waiting -= 1
                if not self._jobs:
                    self._threads -= 1
                    return
                job = self._jobs.popleft()
            failed = 0
            try:
                job.run()
            except Stopped:
                pass
            except Exception:  # any error: a reader that reads here gets it, too
                failed = 1
            with self._lock:
                self.failures += failed
                self._underway.discard(job.name)
                self._pending -= job.size
