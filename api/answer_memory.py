"""What all answers together hold: records as stored, decoded, encoded, and waiting for a client.

An answer takes before it begins what it will need at most, and has it until its last byte is the client's; where that
is not free it is refused (429) and nobody waits for memory. Counted are the large buffers; a connection's own are in
`connections.py`.
"""

from __future__ import annotations

import threading

from ..state.errors import BatchTooLarge, Throttled

RETRY_AFTER_S = 1


class AnswerMemory:
    """``size`` bytes. Thread-safe."""

    def __init__(self, size: int) -> None:
        self.size, self.used, self.most_used, self.refused = size, 0, 0, 0
        self._lock = threading.Lock()

    def hold(self) -> Held:
        """Nothing yet, of one answer."""
        return Held(self)

    def change(self, more: int) -> None:
        """Throttled: so many bytes more are not free."""
        with self._lock:
            if more > 0 and self.used + more > self.size:
                self.refused += 1
                raise Throttled("the gateway's memory is in use", retry_after=RETRY_AFTER_S)
            self.used += more
            self.most_used = max(self.most_used, self.used)


class Held:
    """By one thread at a time."""

    def __init__(self, memory: AnswerMemory) -> None:
        self._memory = memory
        self._bytes: int | None = 0

    @property
    def most(self) -> int:
        """Bytes that all answers together may have."""
        return self._memory.size

    def resize(self, size: int) -> None:
        """To so many bytes in all. Throttled: they are not free; it has what it had. BatchTooLarge: they never are."""
        if size > self._memory.size:
            raise BatchTooLarge(f"the answer takes {size} bytes, and the gateway has {self._memory.size}")
        if self._bytes is not None:  # else it was released while a thread was still at work for it
            self._memory.change(size - self._bytes)
            self._bytes = size

    def release(self) -> None:
        """For good. Idempotent."""
        if self._bytes is not None:
            self._memory.change(-self._bytes)
            self._bytes = None
