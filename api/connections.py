"""The gateway's HTTP server: uvicorn, with a subclass of its protocol for behaviour that no uvicorn setting provides.

    certificate         the app sees the client's certificate (`auth.py`)
    stalled client      a client that takes less than `PROGRESS_BYTES` of its answer in ``write_timeout`` is reset
    unfinished answer   if an answer fails after its status line, the connection is reset: a part is never taken for all
    head                a connection is reset if a request's head is not complete within ``head_timeout``
    errors              a call that is not HTTP, or is on one connection too many, gets a problem body like other calls

uvicorn does everything else. A reverse proxy (`deploy/nginx.conf`) handles many slow clients, connections per address
and HTTP/2. A connection has in memory at most `HEAD_BYTES` of a head, `WRITE_HIGH` of an answer, and the chunk that is
being written.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
from functools import partial
from typing import Any, cast

import h11
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..runtime.gateway_settings import Gateway
from ..state.errors import InvalidRequest, Unavailable
from .auth import CERTIFICATE
from .problems import problem_response
from .service import ClientLeft

DRAIN_SECONDS = 10
"""Time that answers in progress get after a stop."""
PROGRESS_BYTES = 64 * 1024
WRITE_HIGH = 64 * 1024
"""Bytes of an answer that may wait in the connection's buffer. The default for TLS is eight times as much."""
HEAD_BYTES = 64 * 1024
"""The most that h11 keeps of an incomplete head. Its default of 16 KiB is too small for some tokens."""
_CLOSE = (b"connection", b"close")
_RESET = struct.pack("ii", 1, 0)
"""Value of SO_LINGER: on, for 0 seconds, so that closing the socket resets the connection."""


class Connections:
    """The limits of a server's connections, and the number of connections dropped. Only the server's loop uses it."""

    def __init__(self, settings: Gateway) -> None:
        self.settings = settings
        self.dropped = 0


def http_server(app: ASGIApp, connections: Connections, tls: ssl.SSLContext | None = None) -> uvicorn.Server:
    """Return a server, to be run with the sockets that it listens at."""
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    trusted = connections.settings.trusted_proxies
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=cast(type[asyncio.Protocol], partial(HttpConnection, connections)),
            loop="asyncio",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(trusted),
            forwarded_allow_ips=list(trusted),
            h11_max_incomplete_event_size=HEAD_BYTES,
            timeout_graceful_shutdown=DRAIN_SECONDS,
            ssl_context_factory=None if tls is None else lambda config, default: tls,
        )
    )


class HttpConnection(H11Protocol):
    """A connection of the gateway, from its first byte (over TLS: from the end of the handshake) to its end."""

    def __init__(self, of_server: Connections, **options: Any) -> None:
        """``options``: those of uvicorn's protocol."""
        super().__init__(**options)
        self._of_server = of_server
        self._head: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast(asyncio.Transport, transport)
        made.set_write_buffer_limits(high=WRITE_HIGH)
        super().connection_made(made)
        if len(self.connections) > self._of_server.settings.connections:
            self._of_server.dropped += 1
            self.app = _too_many
        else:
            self.app = self._guarded(self.app, made.get_extra_info("peercert"))
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._head, self._stalled):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._end_of_head()
        elif self.cycle is None or self.cycle.response_complete:
            self._await_head()  # the first bytes of the next head

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP with a problem body, and close the connection. uvicorn calls this."""
        response = problem_response(InvalidRequest(msg))
        events: tuple[h11.Response | h11.Data | h11.EndOfMessage, ...] = (
            h11.Response(status_code=400, headers=[*response.raw_headers, _CLOSE]),
            h11.Data(bytes(response.body)),
            h11.EndOfMessage(),
        )
        for event in events:
            self.transport.write(self.conn.send(event))
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _await_head(self) -> None:
        if self._head is None:
            self._head = self.loop.call_later(self._of_server.settings.head_timeout, self._reset)

    def _end_of_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _watch_writing(self) -> None:
        waiting = self.transport.get_write_buffer_size()

        def look() -> None:
            if waiting - self.transport.get_write_buffer_size() < PROGRESS_BYTES:
                self._reset()
            else:
                self._watch_writing()

        self._stalled = self.loop.call_later(self._of_server.settings.write_timeout, look)

    def _reset(self) -> None:
        """Reset the connection. Bytes that the client has not read are dropped, also by the kernel."""
        self._of_server.dropped += 1
        made: socket.socket | None = self.transport.get_extra_info("socket")
        if made is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def _guarded(self, app: ASGIApp, certificate: dict[str, Any] | None) -> ASGIApp:
        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            begun = False

            async def sent(message: Message) -> None:
                nonlocal begun
                begun = True
                await send(message)

            if certificate:
                scope[CERTIFICATE] = certificate
            try:
                await app(scope, receive, sent)
            except ClientLeft:
                pass  # the connection is closed, so uvicorn expects no answer
            except BaseException:
                if begun:
                    self._reset()
                raise

        return guarded


async def _too_many(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a call on a connection above the limit, and close that connection. Other connections continue."""
    response = problem_response(Unavailable("too many connections", retry_after=1))
    response.raw_headers.append(_CLOSE)
    await response(scope, receive, send)
