"""Accept connections for an event loop, and limit how much of the processor that takes.

A connection that is refused costs an accept and a close: nothing is built for it. After a few of those, no connection
is accepted for nine times as long as they took. Refused clients that reconnect again and again get at most a tenth of
a processor; the other clients wait a little longer.

A short iteration of the loop accepts one connection, or the open ones would wait for all that connect at once. An
iteration that spends long on sending answers accepts more: else clients would wait for many such iterations.
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
"""Connections that an iteration accepts, however short it is."""
ONE_MORE_S = 0.002
"""Seconds of the previous iteration for each further connection: accepting one takes a tenth of that or more."""
A_FEW = 8
"""Refused connections in one iteration, after which the acceptor pauses."""
REST = 9
"""Length of that pause, as a multiple of the time that the refusals took."""
RETRY_S = 1.0
"""Pause after an error that no connection caused: the process has no descriptors left."""


class Acceptor:
    """Used by one thread, that of its loop. ``listening``: its ``accept`` raises BlockingIOError if no client waits.

    ``admit`` gets a connection and its peer's address; False closes the connection. ``begin`` serves a connection.
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
        """When the previous iteration ended, if it left connections waiting."""

    def open(self) -> None:
        """Begin to accept connections. Must be called in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._listening, self.turn)

    def close(self) -> None:
        """Accept no connection from now on; harmless when called again. The owner of the socket closes the socket."""
        if self._loop is not None:
            self._loop.remove_reader(self._listening)
            self._loop = None
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def turn(self) -> None:
        """Accept the connections of one iteration of the loop. The loop calls it when a client waits."""
        began = self._now()
        left = A_TURN if self._ended is None else max(A_TURN, int((began - self._ended) / ONE_MORE_S))
        self._ended = None
        refused = 0
        try:
            while left and refused < A_FEW:
                connection, peer = self._listening.accept()
                if self._admit(connection, peer):
                    left -= 1
                    self._begin(connection, peer)
                else:
                    refused += 1
                    connection.close()
        except (BlockingIOError, ConnectionAbortedError):
            pass  # no other client waits, or the waiting client has left
        except OSError as error:
            log.warning("connections are not accepted for %s s: %s", RETRY_S, error)
            self._pause(RETRY_S)
            return
        if refused:
            self._pause(REST * (self._now() - began))
        elif self._somebody_waits():
            self._ended = self._now()

    def _somebody_waits(self) -> bool:
        """Return whether a client waits. If none does, the time until the next one is idle, not a long iteration."""
        waiting = select.poll()
        waiting.register(self._listening, select.POLLIN)
        return bool(waiting.poll(0))

    def _pause(self, seconds: float) -> None:
        assert self._loop is not None
        self._loop.remove_reader(self._listening)
        self._rest = self._loop.call_later(seconds, self.open)
