"""The memory that all connections together may hold, beside the fixed part of each (`peer.py`).

Nobody waits for it: what cannot be had now is done without (a local answer is streamed, a remote one comes later), so
no two connections can wait for each other. Remote reads leave a quarter of it to frames, and a frame of up to `FREE`
bytes needs none: it counts as its connection's own. What is being sent to a client that takes nothing is taken back
when others need it: that client is closed, and fetches again when it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

FREE = 256 * 1024
STALLED_S = 10.0
"""So long a client may take nothing while others are refused."""


class Taker(Protocol):
    """A client that is being sent something."""

    @property
    def stalled_s(self) -> float:
        """Seconds since it took any of it."""
        ...

    @property
    def address(self) -> str: ...

    def abort(self) -> None: ...


class Budget:
    """``size`` bytes. Of one loop. ``close``: aborts a client, whose memory is given back then."""

    def __init__(self, size: int, close: Callable[[Taker], None]) -> None:
        self.size, self.used, self.refused = size, 0, 0
        self._close = close
        self._takers = set[Taker]()

    @property
    def of_a_read(self) -> int:
        """What one remote read takes at most, so that several fit."""
        return self.size // 8

    def for_a_read(self, size: int) -> bool:
        """Whether so much was free, and is taken."""
        return self._take(size, self.size - self.size // 4)

    def for_a_frame(self, size: int) -> Share | None:
        """So much of it, for a `with` block; None where it is not free."""
        if size <= FREE:
            return Share(self, 0)
        return Share(self, size) if self._take(size, self.size) else None

    def has(self, size: int) -> bool:
        """Whether so much is free for a frame now."""
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
        """While it is sent what was taken here."""
        self._takers.add(client)
        try:
            yield
        finally:
            self._takers.discard(client)

    def adjust(self, size: int) -> None:
        """``size`` bytes more are in use, or fewer: what was taken turned out to be of another size."""
        self.used += size


class Share:
    """Of the budget, until its block ends."""

    __slots__ = ("_budget", "_size")

    def __init__(self, budget: Budget, size: int) -> None:
        self._budget, self._size = budget, size

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self._budget.used -= self._size
