"""uvicorn's server, that accepts and begins its connections itself: whoever may not stay costs little."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from ..runtime.acceptor import Acceptor
from ..runtime.clock import Clock
from ..runtime.watchdog import alive
from .connections import HttpProtocol, Open

DRAIN_SECONDS = 10
"""Answers in progress may take so long after a stop."""


class AcceptingServer(uvicorn.Server):
    """Of one socket; TLS is begun by the protocol. ``on_stop``: called before answers in progress are waited for.

    ``trusted``: addresses of proxies whose ``X-Forwarded-Proto`` and ``X-Forwarded-For`` are believed.
    """

    def __init__(
        self,
        app: ASGIApp,
        open_ones: Open,
        listening: socket.socket,
        clock: Clock,
        tls: ssl.SSLContext | None = None,
        on_stop: Callable[[], None] = lambda: None,
        trusted: Sequence[str] = (),
    ) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                loop="asyncio",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=bool(trusted),
                forwarded_allow_ips=list(trusted),
                timeout_graceful_shutdown=DRAIN_SECONDS,
            )
        )
        self._open_ones, self._listening, self._tls = open_ones, listening, tls
        self._on_stop = on_stop
        self._acceptor = Acceptor(listening, open_ones.admit, self._begin, clock)
        self._beginning = set[asyncio.Task[object]]()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])  # none that uvicorn would accept at
        self._acceptor.open()

    async def on_tick(self, counter: int) -> bool:
        """Several times a second, unless something blocks the loop."""
        alive()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._acceptor.close()
        self._listening.close()
        self._on_stop()
        await super().shutdown(sockets)

    def _begin(self, accepted: socket.socket, peer: Any) -> None:
        protocol = HttpProtocol(
            self._open_ones,
            self._tls,
            peer[0],
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        made = asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, accepted)
        task: asyncio.Task[object] = asyncio.ensure_future(made)
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)
