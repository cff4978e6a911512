"""The memory of all answers together: records as stored, decoded, encoded, and waiting for a client.

An answer takes the most that it will need before it begins, and holds it until the client has its last byte. If that
much is not free, the call is refused (429): no call waits for memory. Only large buffers are counted here.
`connections.py` limits the buffers of connections.
"""

from __future__ import annotations

import threading

from ..state.errors import BatchTooLarge, Throttled

RETRY_AFTER_S = 1


class AnswerMemory:
    """A budget of ``size`` bytes. Thread-safe."""

    def __init__(self, size: int) -> None:
        self.size, self.used, self.most_used, self.refused = size, 0, 0, 0
        self._lock = threading.Lock()

    def hold(self) -> Held:
        """Return the memory of one answer, at first 0 bytes."""
        return Held(self)

    def change(self, more: int) -> None:
        """Take ``more`` bytes, or give them back if it is negative. Raises Throttled if they are not free."""
        with self._lock:
            if more > 0 and self.used + more > self.size:
                self.refused += 1
                raise Throttled("the gateway's memory is in use", retry_after=RETRY_AFTER_S)
            self.used += more
            self.most_used = max(self.most_used, self.used)


class Held:
    """The memory that one answer holds. Used by one thread at a time."""

    def __init__(self, memory: AnswerMemory) -> None:
        self._memory = memory
        self._bytes: int | None = 0

    @property
    def most(self) -> int:
        return self._memory.size

    def resize(self, size: int) -> None:
        """Hold ``size`` bytes in total. Raises Throttled, and keeps the old size, if they are not free. Raises
        BatchTooLarge if ``size`` is more than the whole budget.
        """
        if size > self._memory.size:
            raise BatchTooLarge(f"the answer takes {size} bytes, and the gateway has {self._memory.size}")
        if self._bytes is not None:  # else `release` was called while a thread still worked for the answer
            self._memory.change(size - self._bytes)
            self._bytes = size

    def release(self) -> None:
        """Give everything back, for good. Idempotent."""
        if self._bytes is not None:
            self._memory.change(-self._bytes)
            self._bytes = None
