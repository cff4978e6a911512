"""The memory that all connections together may hold, in addition to the fixed buffers of each connection (`peer.py`).

No connection waits for this memory, so there is no deadlock. If memory is short, local answers are streamed, and remote
records come later. Remote reads leave a quarter of the memory to frames. Frames of up to `FREE` bytes do not count.
If memory is short and a client has read nothing for `STALLED_S`, that client's connection is closed. The client fetches
again when it continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .peer import Peer

FREE = 256 * 1024
STALLED_S = 10.0
"""Seconds without progress after which a client may be closed because memory is refused to others."""


class Budget:
    """A budget of ``size`` bytes, for one event loop. ``close`` must abort a client, which returns its memory."""

    def __init__(self, size: int, close: Callable[[Peer], None]) -> None:
        self.size, self.used, self.refused = size, 0, 0
        self._close = close
        self._takers = set[Peer]()

    @property
    def of_a_read(self) -> int:
        """Return the most bytes that one remote read may take, so that several reads fit."""
        return self.size // 8

    def for_a_read(self, size: int) -> bool:
        """Take ``size`` bytes for a remote read. If they are not free, return False; a stalled client may be closed."""
        return self._take(size, self.size - self.size // 4)

    def for_a_frame(self, size: int) -> Share | None:
        """Take ``size`` bytes for a `with` block. If they are not free, return None; a stalled client may be closed."""
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
    def sent_to(self, client: Peer) -> Iterator[None]:
        """Register ``client`` while data that counts in this budget is sent to it, so that it can be closed."""
        self._takers.add(client)
        try:
            yield
        finally:
            self._takers.discard(client)

    def adjust(self, size: int) -> None:
        """Add ``size``, which may be negative, to the bytes in use, if a read returns memory or its size differs."""
        self.used += size


class Share:
    """A part of the budget. The end of its `with` block returns it."""

    __slots__ = ("_budget", "_size")

    def __init__(self, budget: Budget, size: int) -> None:
        self._budget, self._size = budget, size

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self._budget.used -= self._size
