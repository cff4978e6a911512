"""A listening socket at which several processes accept: of them who has fewest connections takes the next one.

All of them wake when somebody connects, and one that is asleep anyway is always first: alone it would have all that
stay open. So whoever has more than another one leaves it the next connection, for `LEAVES_S`; who has fewest takes it
at once, and one that does not wake (it is stopped, it hangs) costs the others no more than that.

What each has stands in memory that they share: two numbers each, which it alone writes.
"""

from __future__ import annotations

import mmap
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

LEAVES_S = 0.005
SETTLES_S = 0.05
"""A connection that was taken counts so long at least: one whose TLS handshake goes on is not yet open."""


def shared_counts(processes: int) -> int:
    """A descriptor of the memory; for each process what it has and what it ever took."""
    made = os.memfd_create("connections", os.MFD_CLOEXEC)
    os.ftruncate(made, 16 * processes)
    return made


class SharedSocket(socket.socket):
    """Non-blocking, by one thread. ``open_ones`` says how many connections this process has."""

    def share(self, counts: int, place: int, open_ones: Callable[[], int]) -> None:
        """``counts``: `shared_counts`; ``place``: ours in it, from 0. Before the first accept."""
        shared = memoryview(mmap.mmap(counts, 0)).cast("q")
        self._have, self._took = shared[0::2], shared[1::2]
        self._place, self._open_ones = place, open_ones
        self._settling: deque[float] = deque()
        self._seen, self._since = -1, 0.0

    def accept(self) -> tuple[socket.socket, Any]:
        """Raises BlockingIOError also where the connection that waits is another one's for a moment."""
        now = time.monotonic()
        while self._settling and now - self._settling[0] > SETTLES_S:
            self._settling.popleft()
        have, taken = self._open_ones() + len(self._settling), sum(self._took)
        self._have[self._place] = have
        if taken != self._seen:  # somebody took the one that waited
            self._seen, self._since = taken, now
        if have > min(self._have) and now - self._since < LEAVES_S:
            raise BlockingIOError
        found = super().accept()
        self._settling.append(now)
        self._have[self._place] = have + 1
        self._took[self._place] += 1
        return found
