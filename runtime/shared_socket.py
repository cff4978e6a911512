"""Listening sockets: one that lets in whom it may, and one at which several processes accept.

Who is one too many costs an accept and a close: nothing is built for it.

A short turn of the loop takes one of many that connect at once, or whoever reads would wait for all of them. Where a
turn is long with the answers it sends, it takes more: those that wait would wait for as many such turns.

Of several processes who has fewest connections takes the next one.

All of them wake when somebody connects, and one that is asleep anyway is always first: alone it would have all that
stay open. So whoever has more than another one leaves it the next connection, for `LEAVES_S`; who has fewest takes it
at once, and one that does not wake (it is stopped, it hangs) costs the others no more than that.

What each has stands in memory that they share: two numbers each, which it alone writes.
"""

from __future__ import annotations

import mmap
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

A_TURN = 1
"""Connections, however short it is."""
ONE_MORE_S = 0.002
"""Of the turn before, for each: to begin it takes a tenth of that or more."""
LEAVES_S = 0.005
SETTLES_S = 0.05
"""A connection that was taken counts so long at least: one whose TLS handshake goes on is not yet open."""


def shared_counts(processes: int) -> int:
    """A descriptor of the memory; for each process what it has and what it ever took."""
    made = os.memfd_create("connections", os.MFD_CLOEXEC)
    os.ftruncate(made, 16 * processes)
    return made


class AdmittingSocket(socket.socket):
    """Non-blocking, by one thread, a loop's, which accepts in each turn until BlockingIOError."""

    admit: Callable[[socket.socket, Any], bool]
    """Of a connection and the other end's address; one that may not stay is closed."""
    _left = A_TURN
    """Of this turn."""
    _ended: float | None = None
    """When the turn before did, if it left some."""

    def accept(self) -> tuple[socket.socket, Any]:
        """Raises BlockingIOError also for one that may not stay, and where a turn has taken enough."""
        if self._ended is not None:
            self._left = max(A_TURN, int((time.monotonic() - self._ended) / ONE_MORE_S))
            self._ended = None
        if not self._left:
            self._end_turn()
            raise BlockingIOError
        try:
            found, peer = self._next()
        except BlockingIOError:
            self._left = A_TURN
            raise
        self._left -= 1
        if not self.admit(found, peer):
            found.close()
            self._end_turn()
            raise BlockingIOError
        return found, peer

    def _end_turn(self) -> None:
        """Where nobody waits, what comes until the next one is no long turn: nothing comes."""
        waiting = select.poll()
        waiting.register(self, select.POLLIN)
        self._ended = time.monotonic() if waiting.poll(0) else None
        self._left = A_TURN

    def _next(self) -> tuple[socket.socket, Any]:
        return super().accept()


class SharedSocket(AdmittingSocket):
    """``open_ones`` says how many connections this process has."""

    def share(self, counts: int, place: int, open_ones: Callable[[], int]) -> None:
        """``counts``: `shared_counts`; ``place``: ours in it, from 0. Without it whoever accepts takes."""
        shared = memoryview(mmap.mmap(counts, 0)).cast("q")
        self._have, self._took = shared[0::2], shared[1::2]
        self._place, self._open_ones = place, open_ones
        self._settling: deque[float] = deque()
        self._seen, self._since = -1, 0.0

    def _next(self) -> tuple[socket.socket, Any]:
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
        found = super()._next()
        self._settling.append(now)
        self._have[self._place] = have + 1
        self._took[self._place] += 1
        return found
