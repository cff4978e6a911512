"""The queue of partitions that wait for a thread: fresh partitions come before those that catch up with a backlog.

The next segment of a partition that is hours behind is not urgent. The segment of a fresh partition has just rolled,
and readers and the disk wait for its copy. Each kind is served first come, first served. After `FRESH_IN_A_ROW` fresh
partitions one that catches up has a turn: otherwise a backlog would last as long as the agent is busy.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

W = TypeVar("W")
FRESH_IN_A_ROW = 8
"""The number of fresh partitions that go first while one that catches up waits."""


class ReadyQueue(Generic[W]):
    """A thread-safe queue of workers; no method blocks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fresh: deque[W] = deque()
        self._behind: deque[W] = deque()
        self._in_a_row = 0

    def put(self, worker: W, *, catching_up: bool) -> None:
        with self._lock:
            (self._behind if catching_up else self._fresh).append(worker)

    def take(self) -> W:
        """Return the next worker. Raises IndexError when none waits."""
        with self._lock:
            if self._fresh and not (self._behind and self._in_a_row >= FRESH_IN_A_ROW):
                self._in_a_row += 1
                return self._fresh.popleft()
            self._in_a_row = 0
            return self._behind.popleft()

    @property
    def waits(self) -> int:
        """Return the number of waiting workers."""
        return len(self._fresh) + len(self._behind)

    @property
    def fresh_waits(self) -> bool:
        """Return whether a fresh worker waits. Then a worker that catches up stops after its current operation."""
        return bool(self._fresh)
