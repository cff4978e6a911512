"""Who is next: partitions that wait for a thread, fresh ones before those that catch up.

A partition that is far behind has hours to go, and nobody waits for its next segment; one that rolled just now is what
readers and the disk wait for. Within each kind the first to come is the first to go. However many fresh ones there are,
now and then one that catches up has a turn: else a backlog would last as long as the agent is busy.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

W = TypeVar("W")
FRESH_IN_A_ROW = 8
"""Turns of fresh ones while one that catches up waits; then it has one."""


class TurnQueue(Generic[W]):
    """Thread-safe; nobody waits in it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fresh: deque[W] = deque()
        self._behind: deque[W] = deque()
        self._in_a_row = 0

    def put(self, worker: W, *, catching_up: bool) -> None:
        with self._lock:
            (self._behind if catching_up else self._fresh).append(worker)

    def take(self) -> W:
        """Raises IndexError when nobody waits."""
        with self._lock:
            if self._fresh and not (self._behind and self._in_a_row >= FRESH_IN_A_ROW):
                self._in_a_row += 1
                return self._fresh.popleft()
            self._in_a_row = 0
            return self._behind.popleft()

    @property
    def waits(self) -> int:
        """How many wait."""
        return len(self._fresh) + len(self._behind)

    @property
    def fresh_waits(self) -> bool:
        """Whether one that catches up should let go after its act."""
        return bool(self._fresh)
