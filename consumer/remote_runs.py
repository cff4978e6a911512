"""Reading ahead in the remote tier, for a limited number of a consumer's partitions, because it needs memory.

A run reads ahead for one partition. With a distant store it holds up to 28 MiB: four requests of 4 MiB or a chunk, and
the waiting pieces. With a folder it holds windows of 4 MiB: the one that is being read, and those that wait. Partitions
beyond the first `RUNS` are read piece by piece, through the chunk cache.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import islice
from weakref import WeakKeyDictionary

from ..fetch.logical import Ask, LogicalPartition
from ..fetch.piece import Fetched
from ..fetch.remote_parts import AnotherLog, RemoteReads, RemoteRun, read_parts
from ..state.errors import CorruptData, ObjectNotFound
from ..state.routing import ReadRemote
from ..state.segment import RemoteSegment
from .assigned_partition import AssignedPartition

RUNS = 8
PARTS = 64
"""The most segments of one run. A new run begins after them."""
WINDOW_BYTES = 4 * 1024 * 1024

_Run = tuple[threading.Lock, RemoteRun]


class RemoteRuns:
    """The runs of a consumer, at most ``most`` at a time. Thread-safe, but only one `read` per partition at a time."""

    def __init__(self, most: int = RUNS) -> None:
        self._most, self._lock = most, threading.Lock()
        self._runs: dict[AssignedPartition, _Run] = {}
        self._doubted = WeakKeyDictionary[AssignedPartition, RemoteSegment]()
        """The segment of each read that raised AnotherLog. It is checked completely before it is read again."""

    def read(self, part: AssignedPartition, log: LogicalPartition, where: ReadRemote, ask: Ask) -> Fetched | None:
        """Return the piece at ``where``, or None if the caller must use ``log``. Raises AnotherLog and Unavailable."""
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
        except (ObjectNotFound, CorruptData):  # `log` then reports the cause, and returns the records before the damage
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
                parts = [*islice(log.parts(where, ask), PARTS)]
                reads = RemoteReads(log.remote.store, log.remote.keys, ask.isolation, WINDOW_BYTES)
                entry = self._runs[part] = threading.Lock(), RemoteRun(parts, reads)
            return entry

    def end(self, part: AssignedPartition) -> None:
        """End the run of ``part``. Waits for a running read of the run. Idempotent."""
        with self._lock:
            entry = self._runs.pop(part, None)
        if entry is not None:
            lock, run = entry
            with lock:
                run.close()

    def close(self) -> None:
        for part in list(self._runs):
            self.end(part)
