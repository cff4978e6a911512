"""The memory that all connections together may hold, beside the fixed part of each (`peer.py`).

Nobody waits for it: what cannot be had now is done without (a local answer is streamed, a remote one comes later), so
no two connections can wait for each other.
"""

from __future__ import annotations


class Budget:
    """``size`` bytes. Of one loop."""

    def __init__(self, size: int) -> None:
        self.size, self.used, self.refused = size, 0, 0

    def take(self, size: int) -> bool:
        """Whether so much was free, and is taken."""
        if self.used + size > self.size:
            self.refused += 1
            return False
        self.used += size
        return True

    def adjust(self, size: int) -> None:
        """``size`` bytes more are in use, or fewer: what was taken turned out to be of another size."""
        self.used += size
