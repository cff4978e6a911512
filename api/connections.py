"""One HTTP connection: uvicorn's, that costs no more than it may and shows the client's certificate to the app.

    too many           answered 503 and closed, whoever they are
    head               a request's head comes within `head_timeout` of the connection, or of its own first byte
    body of an answer  the client takes `PROGRESS_BYTES` in each `write_timeout`, or all there is
    an answer that cannot be finished is reset: no client may take a part for the whole

Memory of a connection: what h11 keeps of a head (64 KiB), and `WRITE_HIGH` with the chunk in hand that the client has
not taken.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from typing import Any, cast

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..runtime.gateway_settings import Gateway
from .auth import CERTIFICATE
from .service import ClientLeft

PROGRESS_BYTES = 64 * 1024
WRITE_HIGH = 64 * 1024
LONGEST_HEAD = 64 * 1024
"""Of what h11 keeps while a head is not whole."""
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: on, and no time for it."""


class Open:
    """The connections of one server; by its loop alone."""

    def __init__(self, settings: Gateway) -> None:
        self.settings = settings
        self.count = self.refused = self.reset = 0
        self._of_address: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """Whether there is room for one more of that address."""
        if (
            self.count >= self.settings.connections
            or self._of_address[address] >= self.settings.connections_per_address
        ):
            self.refused += 1
            return False
        self.count += 1
        self._of_address[address] += 1
        return True

    def leave(self, address: str) -> None:
        self.count -= 1
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]


def protocol_of(connections: Open) -> type[asyncio.Protocol]:
    """For uvicorn's ``http``."""

    class Bound(HttpProtocol):
        open_ones = connections

    return Bound


class _Connection(h11.Connection):
    """What is sent of a body is written from where it lies; h11 itself would copy it once more."""

    def send(self, event: h11.Event) -> Any:
        parts = self.send_with_data_passthrough(event)
        return parts[0] if parts and len(parts) == 1 else None if parts is None else b"".join(parts)


class HttpProtocol(H11Protocol):
    """Made by uvicorn, one for each connection."""

    open_ones: Open

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = _Connection(h11.SERVER, LONGEST_HEAD)
        self._address: str | None = None
        self._head: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        address = self.client[0] if self.client else ""
        if not self.open_ones.enter(address):
            self.transport.write(_BUSY)
            self.transport.close()
            return
        self._address = address
        self.transport.set_write_buffer_limits(high=WRITE_HIGH)
        self.app = self._resetting(self.app, transport.get_extra_info("peercert"))
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._head, self._stalled):
            if timer is not None:
                timer.cancel()
        if self._address is not None:
            self.open_ones.leave(self._address)
            self._address = None

    def data_received(self, data: bytes) -> None:
        if self._address is None:
            return  # refused
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._head_is_there()
        elif self.cycle is None or self.cycle.response_complete:
            self._await_head()  # bytes of the next one

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
            self._head = self.loop.call_later(self.open_ones.settings.head_timeout, self._give_up)

    def _head_is_there(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _watch_writing(self) -> None:
        waiting = self.transport.get_write_buffer_size()

        def look() -> None:
            if waiting - self.transport.get_write_buffer_size() < PROGRESS_BYTES:
                self._give_up()
            else:
                self._watch_writing()

        self._stalled = self.loop.call_later(self.open_ones.settings.write_timeout, look)

    def _give_up(self) -> None:
        """Reset: what was not sent is thrown away, also by the kernel."""
        self.open_ones.reset += 1
        made: socket.socket | None = self.transport.get_extra_info("socket")
        if made is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def _resetting(self, app: ASGIApp, certificate: dict[str, Any] | None) -> ASGIApp:
        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            begun = False

            async def sent(message: Message) -> None:
                nonlocal begun
                begun = begun or message["type"] == "http.response.start"
                await send(message)

            try:
                if self.flow.write_paused:  # by the answer before: nothing is made for who does not take it
                    await self.flow.drain()
                await app({**scope, CERTIFICATE: certificate} if certificate else scope, receive, sent)
            except ClientLeft:
                self.transport.abort()
            except BaseException:
                if begun:
                    self._give_up()
                raise

        return watched
