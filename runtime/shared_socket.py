"""A listening socket at which several processes accept: the process with the fewest connections takes the next one.

All of them wake when a client connects, and a process that sleeps anyway is always first: it alone would get all
connections that stay open. So a process that has more than another one leaves it the next connection for `LEAVES_S`;
the process with the fewest accepts at once. A process that does not wake (it is stopped, it hangs) costs the others
only that wait. The counts are in shared memory: two numbers for each process, which it alone writes.
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
"""A new connection counts for at least this long: one whose TLS handshake goes on is not yet open."""


def shared_counts(processes: int) -> int:
    """Return a descriptor of the memory: for each process, the connections it has and all that it ever accepted."""
    made = os.memfd_create("connections", os.MFD_CLOEXEC)
    os.ftruncate(made, 16 * processes)
    return made


class SharedSocket(socket.socket):
    """Non-blocking, used by one thread. ``open_ones`` returns how many connections this process has."""

    def share(self, counts: int, place: int, open_ones: Callable[[], int]) -> None:
        """Join the other processes, before the first accept. ``counts``: `shared_counts`; ``place``: ours, from 0."""
        shared = memoryview(mmap.mmap(counts, 0)).cast("q")
        self._have, self._took = shared[0::2], shared[1::2]
        self._place, self._open_ones = place, open_ones
        self._settling: deque[float] = deque()
        self._seen, self._since = -1, 0.0

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection. Raises BlockingIOError also if the waiting connection is left to another process."""
        now = time.monotonic()
        while self._settling and now - self._settling[0] > SETTLES_S:
            self._settling.popleft()
        have, taken = self._open_ones() + len(self._settling), sum(self._took)
        self._have[self._place] = have
        if taken != self._seen:  # a process took the one that waited
            self._seen, self._since = taken, now
        if have > min(self._have) and now - self._since < LEAVES_S:
            raise BlockingIOError
        accepted = super().accept()
        self._settling.append(now)
        self._have[self._place] = have + 1
        self._took[self._place] += 1
        return accepted
