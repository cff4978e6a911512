"""The partitions of a consumer that read the remote tier ahead: a few, because reading ahead takes memory.

One run holds, with a distant store, four requests of 4 MiB or a chunk, and the waiting pieces: 28 MiB. With a folder it
holds windows of 4 MiB: one being read, and those that wait. A partition beyond `RUNS` is read piece by piece, through
the chunk cache.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import islice
from weakref import WeakKeyDictionary

from ..fetch.logical import Ask, LogicalPartition
from ..fetch.piece import Fetched
from ..fetch.proven_log import AnotherLog
from ..fetch.remote_parts import RemoteReads, read_parts
from ..fetch.remote_run import RemoteRun
from ..state.errors import CorruptData, ObjectNotFound
from ..state.routing import ReadRemote
from ..state.segment import RemoteSegment
from .assigned_partition import AssignedPartition

RUNS = 8
PARTS = 64
"""Segments of a run. After them a new run begins."""
WINDOW_BYTES = 4 * 1024 * 1024

_Run = tuple[threading.Lock, RemoteRun]


class RemoteRuns:
    """The runs of a consumer, ``most`` at a time. Thread-safe, with one `read` at a time for each partition."""

    def __init__(self, most: int = RUNS) -> None:
        self._most, self._lock = most, threading.Lock()
        self._runs: dict[AssignedPartition, _Run] = {}
        self._doubted = WeakKeyDictionary[AssignedPartition, RemoteSegment]()
        """Partitions whose log was another one: the segment is read in full before more of it is handed out."""

    def read(self, part: AssignedPartition, log: LogicalPartition, where: ReadRemote, ask: Ask) -> Fetched | None:
        """Return the piece at ``where``, or None: ask `log` for it. Raises AnotherLog, Unavailable."""
        piece = None
        try:
            self._prove(part, log, where, ask)
            locked_run = self._run(part, log, where, ask)
            if locked_run is None:
                return None
            lock, run = locked_run
            with lock:
                piece = run.take(where)
        except AnotherLog:
            self._doubted[part] = where.segment
            raise
        except (ObjectNotFound, CorruptData):  # `log` finds out why, and has what comes before the damage
            pass
        finally:
            if piece is None:
                self.end(part)
        return None if piece is None else log.of_remote(where, piece)

    def _prove(self, part: AssignedPartition, log: LogicalPartition, where: ReadRemote, ask: Ask) -> None:
        segment = self._doubted.get(part)
        if segment == where.segment:
            reads = RemoteReads(log.remote.store, log.remote.keys, ask.isolation, WINDOW_BYTES)
            deque(read_parts([(segment, segment.offsets)], reads), 0)
        self._doubted.pop(part, None)

    def _run(self, part: AssignedPartition, log: LogicalPartition, where: ReadRemote, ask: Ask) -> _Run | None:
        with self._lock:
            entry = self._runs.get(part)
            if entry is None and len(self._runs) < self._most:
                parts = [(where.segment, where.offsets), *islice(log.following(where, ask), PARTS - 1)]
                reads = RemoteReads(log.remote.store, log.remote.keys, ask.isolation, WINDOW_BYTES)
                entry = self._runs[part] = threading.Lock(), RemoteRun(parts, reads)
            return entry

    def end(self, part: AssignedPartition) -> None:
        """End the run of ``part``, after a running read of it. Idempotent."""
        with self._lock:
            entry = self._runs.pop(part, None)
        if entry is not None:
            lock, run = entry
            with lock:
                run.close()

    def close(self) -> None:
        for part in list(self._runs):
            self.end(part)
