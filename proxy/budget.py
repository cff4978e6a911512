"""The memory that all connections together may hold, in addition to the fixed part of each (`peer.py`).

No connection waits for this memory, so no two connections can wait for each other. If there is not enough, the proxy
does without: a local answer is streamed, a remote one comes later. Remote reads leave a quarter of it to frames. A
frame of up to `FREE` bytes needs none: it counts as its connection's own. If memory is needed while a client has
stopped reading its answer, that client's connection is closed. The client fetches again when it continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

FREE = 256 * 1024
STALLED_S = 10.0
"""A client may read nothing for this long, in seconds, while others are refused memory."""


class Taker(Protocol):
    """A client to which an answer is being sent."""

    @property
    def stalled_s(self) -> float:
        """Return the seconds since the client last read any of it."""
        ...

    @property
    def address(self) -> str: ...

    def abort(self) -> None: ...


class Budget:
    """``size`` bytes, used by one event loop. ``close`` aborts a client, which then gives its memory back."""

    def __init__(self, size: int, close: Callable[[Taker], None]) -> None:
        self.size, self.used, self.refused = size, 0, 0
        self._close = close
        self._takers = set[Taker]()

    @property
    def of_a_read(self) -> int:
        """Return the bytes that one remote read takes at most, so that several fit."""
        return self.size // 8

    def for_a_read(self, size: int) -> bool:
        """Take ``size`` bytes for a remote read. Return False if they are not free."""
        return self._take(size, self.size - self.size // 4)

    def for_a_frame(self, size: int) -> Share | None:
        """Take ``size`` bytes for the length of a `with` block. Return None if they are not free."""
        if size <= FREE:
            return Share(self, 0)
        return Share(self, size) if self._take(size, self.size) else None

    def has(self, size: int) -> bool:
        """Return whether ``size`` bytes are free for a frame now."""
        return size <= FREE or self.used + size <= self.size

    def _take(self, size: int, limit: int) -> bool:
        if self.used + size > limit:
            self.refused += 1
            slowest = max(self._takers, key=lambda each: each.stalled_s, default=None)
            if slowest is not None and slowest.stalled_s >= STALLED_S:
                self._takers.discard(slowest)
                self._close(slowest)
            return False
        self.used += size
        return True

    @contextmanager
    def sent_to(self, client: Taker) -> Iterator[None]:
        """Register ``client`` for as long as memory that was taken here is being sent to it."""
        self._takers.add(client)
        try:
            yield
        finally:
            self._takers.discard(client)

    def adjust(self, size: int) -> None:
        """Add ``size``, which may be negative, to the bytes in use: the real size differs from the size taken."""
        self.used += size


class Share:
    """A part of the budget, given back when its `with` block ends."""

    __slots__ = ("_budget", "_size")

    def __init__(self, budget: Budget, size: int) -> None:
        self._budget, self._size = budget, size

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self._budget.used -= self._size
