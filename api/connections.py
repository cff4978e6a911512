"""One HTTP connection: uvicorn's, that costs no more than it may and shows the client's certificate to the app.

    too many           answered 503 and closed, whoever they are; over TLS closed without a word
    TLS                a connection counts from its first moment, also while its handshake goes on
    head               handshake and request's head come within `head_timeout` of the connection, later ones of their
                       own first byte
    wrong calls        one behind the other, more than `FEW_WRONG`: each waits longer than the one before
    body of an answer  the client takes `PROGRESS_BYTES` in each `write_timeout`, or all there is
    an answer that cannot be finished is reset: no client may take a part for the whole
    in one turn        of the loop, one connection ends by a time-out; about as many begin: `A_TURN`

Memory of a connection: what h11 keeps of a head (64 KiB), and `WRITE_HIGH` with the chunk in hand that the client has
not taken (`outgoing.py`).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..runtime.acceptor import A_TURN
from ..runtime.gateway_settings import Gateway
from ..state.errors import InvalidRequest, Unavailable
from .auth import CERTIFICATE
from .outgoing import Outgoing
from .problems import problem_response
from .service import ClientLeft

PROGRESS_BYTES = 64 * 1024
WRITE_HIGH = 64 * 1024
LONGEST_HEAD = 64 * 1024
"""Of what h11 keeps while a head is not whole."""
FEW_WRONG, WRONG_PAUSE_S, LONGEST_PAUSE_S = 8, 0.1, 1.0
_TOO_MANY = problem_response(Unavailable("too many connections", retry_after=1))
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\n%s\r\n%s" % (
    b"".join(b"%s: %s\r\n" % each for each in _TOO_MANY.raw_headers),
    bytes(_TOO_MANY.body),
)
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: on, and no time for it."""


class Open:
    """The connections of one server; by its loop alone."""

    def __init__(self, settings: Gateway) -> None:
        self.settings = settings
        self.count = self.refused = self.reset = self.slowed = 0
        self._of_address: Counter[str] = Counter()
        self._ending: deque[Callable[[], None]] = deque()

    def admit(self, accepted: socket.socket, peer: Any) -> bool:
        """Whether there is room for one more of that address; it is counted then."""
        address = peer[0]
        if (
            self.count >= self.settings.connections
            or self._of_address[address] >= self.settings.connections_per_address
        ):
            self.refused += 1
            if self.settings.tls.certificate is None:
                with suppress(OSError):
                    accepted.send(_BUSY)
            return False
        self.count += 1
        self._of_address[address] += 1
        return True

    def leave(self, address: str) -> None:
        self.count -= 1
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]

    def end(self, loop: asyncio.AbstractEventLoop, one: Callable[[], None]) -> None:
        """Calls it in one of the next turns: a thousand may have waited for the same moment."""
        self._ending.append(one)
        if len(self._ending) == 1:
            loop.call_soon(self._end_some, loop)

    def _end_some(self, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(min(A_TURN, len(self._ending))):
            self._ending.popleft()()
        if self._ending:
            loop.call_soon(self._end_some, loop)


class _Connection(h11.Connection):
    """What is sent of a body is written from where it lies; h11 itself would copy it once more, and twice in chunks."""

    def send(self, event: h11.Event) -> Any:
        """Of a body parts, which `Outgoing.write` takes. uvicorn only passes them on."""
        return self.send_with_data_passthrough(event) if type(event) is h11.Data else super().send(event)


class HttpProtocol(H11Protocol):
    """One for each connection."""

    def __init__(self, open_ones: Open, tls: ssl.SSLContext | None, address: str, **of_server: Any) -> None:
        """``open_ones``: has admitted it. ``of_server``: what uvicorn's asks for."""
        super().__init__(**of_server)
        self.conn = _Connection(h11.SERVER, LONGEST_HEAD)
        self.open_ones, self._tls = open_ones, tls
        self._address: str | None = address
        self._accepted: asyncio.Transport
        self._begun = False
        """Whether TLS, if there is any, has been agreed upon."""
        self._handshake: asyncio.Task[None] | None = None
        self._early = bytearray()
        """What came with the end of the handshake."""
        self._head: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._wrong = 0
        """Calls in a row."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._accepted = accepted = cast(asyncio.Transport, transport)
        self._await_head()
        if self._tls is None:
            self._begin(accepted)
        else:
            accepted.pause_reading()  # what comes now is the handshake's
            self._handshake = self.loop.create_task(self._shake_hands(accepted, self._tls))

    async def _shake_hands(self, accepted: asyncio.Transport, context: ssl.SSLContext) -> None:
        patience = 2 * self.open_ones.settings.head_timeout  # the head's time, which is less, ends it
        try:
            made = await self.loop.start_tls(accepted, self, context, server_side=True, ssl_handshake_timeout=patience)
        except OSError:  # the client's doing: no certificate, no TLS, or it left
            made = None
        if made is None or accepted.is_closing():
            self.connection_lost(None)
            return
        self._begin(made)
        early, self._early = bytes(self._early), bytearray()
        if early:
            self.data_received(early)

    def _begin(self, transport: asyncio.Transport) -> None:
        self._begun = True
        transport.set_write_buffer_limits(high=WRITE_HIGH)
        outgoing = Outgoing(transport, self.loop, plain=self._tls is None)
        super().connection_made(outgoing)
        self.app = self._watched(self.app, outgoing, transport.get_extra_info("peercert"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._begun:
            super().connection_lost(exc)
        for timer in (self._head, self._stalled):
            if timer is not None:
                timer.cancel()
        if self._address is not None:
            self.open_ones.leave(self._address)
            self._address = None

    def data_received(self, data: bytes) -> None:
        if not self._begun:
            self._early += data
            return
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._head_is_there()
        elif self.cycle is None or self.cycle.response_complete:
            self._await_head()  # bytes of the next one

    def send_400_response(self, msg: str) -> None:
        """As uvicorn's, with a problem as every error has it."""
        response = problem_response(InvalidRequest(msg))
        headers = [*response.raw_headers, (b"connection", b"close")]
        for event in (
            h11.Response(status_code=400, headers=headers),
            h11.Data(bytes(response.body)),
            h11.EndOfMessage(),
        ):
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
            self._head = self.loop.call_later(
                self.open_ones.settings.head_timeout, self.open_ones.end, self.loop, self._give_up_head
            )

    def _give_up_head(self) -> None:
        if self._head is not None and self._address is not None:
            self._give_up()

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
        transport = self.transport if self._begun else self._accepted
        made: socket.socket | None = transport.get_extra_info("socket")
        if made is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transport.abort()

    def _watched(self, app: ASGIApp, outgoing: Outgoing, certificate: dict[str, Any] | None) -> ASGIApp:
        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            begun = False

            async def sent(message: Message) -> None:
                nonlocal begun
                if message["type"] == "http.response.start":
                    begun = True
                    self._wrong = self._wrong + 1 if _is_wrong(message["status"]) else 0
                await send(message)
                if message["type"] == "http.response.body" and not message.get("more_body", False):
                    outgoing.flush()
                    if self.flow.write_paused:  # who sent it has memory for it until the client has it
                        await self.flow.drain()

            try:
                if self.flow.write_paused:  # by the answer before: nothing is made for who does not take it
                    await self.flow.drain()
                if (pause := pause_of(self._wrong)) > 0:
                    self.open_ones.slowed += 1
                    await asyncio.sleep(pause)
                await app({**scope, CERTIFICATE: certificate} if certificate else scope, receive, sent)
            except ClientLeft:
                self.transport.abort()
            except BaseException:
                if begun:
                    self._give_up()
                raise

        return watched


def pause_of(wrong: int) -> float:
    """Seconds before the call that comes after so many wrong ones."""
    return min(max(0, wrong - FEW_WRONG) * WRONG_PAUSE_S, LONGEST_PAUSE_S)


def _is_wrong(status: int) -> bool:
    """What would be refused again. Not 429: that caller is told to come again."""
    return 400 <= status < 500 and status != 429
