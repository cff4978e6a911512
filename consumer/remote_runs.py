"""Which partitions of a consumer read the remote tier ahead of themselves: a few, because that takes memory.

What one of them holds, of a store that is far: four requests of 4 MiB or a chunk, and the pieces that wait; 28 MiB. Of
a folder: windows of 4 MiB, one that is read and those that wait. A partition beyond `RUNS` is read piece by piece,
through the chunk cache.
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
"""Segments of a run; behind them another one begins."""
WINDOW_BYTES = 4 * 1024 * 1024

_Run = tuple[threading.Lock, RemoteRun]


class RemoteRuns:
    """At most ``most``. Thread-safe; of one partition one `read` at a time."""

    def __init__(self, most: int = RUNS) -> None:
        self._most, self._lock = most, threading.Lock()
        self._runs: dict[AssignedPartition, _Run] = {}
        self._doubted = WeakKeyDictionary[AssignedPartition, RemoteSegment]()
        """Whose log was another one: it is read again from end to end before anything more of it is handed out."""

    def read(self, part: AssignedPartition, log: LogicalPartition, where: ReadRemote, ask: Ask) -> Fetched | None:
        """Return the piece at ``where``, or None: ask `log` for it. Raises AnotherLog, Unavailable."""
        piece = None
        try:
            self._prove(part, log, where, ask)
            found = self._run(part, log, where, ask)
            if found is None:
                return None
            lock, run = found
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
            found = self._runs.get(part)
            if found is None and len(self._runs) < self._most:
                parts = [(where.segment, where.offsets), *islice(log.following(where, ask), PARTS - 1)]
                reads = RemoteReads(log.remote.store, log.remote.keys, ask.isolation, WINDOW_BYTES)
                found = self._runs[part] = threading.Lock(), RemoteRun(parts, reads)
            return found

    def end(self, part: AssignedPartition) -> None:
        """Waits for a read of it. Idempotent."""
        with self._lock:
            found = self._runs.pop(part, None)
        if found is not None:
            lock, run = found
            with lock:
                run.close()

    def close(self) -> None:
        for part in list(self._runs):
            self.end(part)
