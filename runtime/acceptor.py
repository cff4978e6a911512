"""Accepts connections for a loop: who may come in, and how many at a time.

Who is one too many costs an accept and a close: nothing is built for it. After a few of those nobody is accepted for
nine times as long as they took. However many come, and come again, they get a tenth of a processor; the others wait for
their turn a little longer.

A short turn of the loop takes one of many that connect at once, or whoever reads would wait for all of them. Where a
turn is long with the answers it sends, it takes more: those that wait would wait for as many such turns.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
from collections.abc import Callable
from typing import Any

from .clock import Clock

log = logging.getLogger(__name__)
A_TURN = 1
"""Connections, however short it is."""
ONE_MORE_S = 0.002
"""Of the turn before, for each: to begin it takes a tenth of that or more."""
A_FEW = 8
"""That may not stay, before those who come rest."""
REST = 9
"""Times as long as those took."""
RETRY_S = 1.0
"""After what is no fault of a connection: no descriptors are left."""


class Acceptor:
    """By one thread, its loop's. ``listening``: anything whose ``accept`` raises BlockingIOError where nobody is next.

    ``admit``: of a connection and the other end's address; one that may not stay is closed. ``begin``: serves it.
    """

    def __init__(
        self,
        listening: socket.socket,
        admit: Callable[[socket.socket, Any], bool],
        begin: Callable[[socket.socket, Any], None],
        clock: Clock,
    ) -> None:
        listening.setblocking(False)
        self._listening, self._admit, self._begin, self._now = listening, admit, begin, clock.monotonic
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rest: asyncio.TimerHandle | None = None
        self._ended: float | None = None
        """When the turn before did, if it left some."""

    def open(self) -> None:
        """In the running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._listening, self.turn)

    def close(self) -> None:
        """Accepts nobody from now on; harmless when asked again. The socket is its owner's."""
        if self._loop is not None:
            self._loop.remove_reader(self._listening)
            self._loop = None
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def turn(self) -> None:
        """What it does in a turn of the loop in which somebody connects."""
        began = self._now()
        left = A_TURN if self._ended is None else max(A_TURN, int((began - self._ended) / ONE_MORE_S))
        self._ended = None
        refused = 0
        try:
            while left and refused < A_FEW:
                found, peer = self._listening.accept()
                if self._admit(found, peer):
                    left -= 1
                    self._begin(found, peer)
                else:
                    refused += 1
                    found.close()
        except (BlockingIOError, ConnectionAbortedError):
            pass  # nobody else waits; or who did has left
        except OSError as error:
            log.warning("connections are not accepted for %s s: %s", RETRY_S, error)
            self._pause(RETRY_S)
            return
        if refused:
            self._pause(REST * (self._now() - began))
        elif self._somebody_waits():
            self._ended = self._now()

    def _somebody_waits(self) -> bool:
        """Where nobody does, what comes until the next one is no long turn: nothing comes."""
        waiting = select.poll()
        waiting.register(self._listening, select.POLLIN)
        return bool(waiting.poll(0))

    def _pause(self, seconds: float) -> None:
        assert self._loop is not None
        self._loop.remove_reader(self._listening)
        self._rest = self._loop.call_later(seconds, self.open)
