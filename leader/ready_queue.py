"""The queue of partitions that wait for a thread: fresh ones come before those that catch up.

A partition that is far behind has hours to go, and its next segment is not urgent; readers and the disk wait for one
that rolled just now. Each kind is served first come, first served. However many fresh ones there are, one that catches
up gets a turn now and then: otherwise a backlog would last as long as the agent is busy.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

W = TypeVar("W")
FRESH_IN_A_ROW = 8
"""How many fresh ones go first while one that catches up waits; then that one has a turn."""


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
        """Return how many workers wait."""
        return len(self._fresh) + len(self._behind)

    @property
    def fresh_waits(self) -> bool:
        """Return whether a worker that catches up should yield its turn after its operation."""
        return bool(self._fresh)
