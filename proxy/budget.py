"""The memory that all connections together may hold, beside the fixed part of each (`peer.py`).

Nobody waits for it: what cannot be had now is done without (a local answer is streamed, a remote one comes later), so
no two connections can wait for each other. Remote reads leave a quarter of it to frames, and a frame of up to `FREE`
bytes needs none: it counts as its connection's own.
"""

from __future__ import annotations

FREE = 256 * 1024


class Budget:
    """``size`` bytes. Of one loop."""

    def __init__(self, size: int) -> None:
        self.size, self.used, self.refused = size, 0, 0

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
            return False
        self.used += size
        return True

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
