"""One HTTP connection: it costs no more than it may, and shows the client's certificate to the app.

    too many           answered 503 and closed, whoever they are; over TLS closed without a word
    calls              one after the other; of a client that does not wait for answers so many as `MOST_WAITING`, then
                       it is closed
    TLS                a connection counts from its first moment, also while its handshake goes on
    head               handshake and request's head come within `head_timeout` of the connection, later ones of their
                       own first byte
    wrong calls        one behind the other, more than `FEW_WRONG`: each waits longer than the one before
    body of an answer  the client takes `PROGRESS_BYTES` in each `write_timeout`, or all there is
    an answer that cannot be finished is reset: no client may take a part for the whole
    in one turn        of the loop, as many connections end by a time-out as begin: `A_TURN`

Without TLS bytes go to the socket from where they lie. What it does not take at once is copied: a view would keep a
whole chunk of the cache, that nobody counts, for a client who may be slow.
Memory of a connection: a head (64 KiB), as much of a request's body, and `WRITE_HIGH` with the chunk in hand that the
client has not taken.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, cast
from urllib.parse import unquote

import httptools
import uvicorn
from uvicorn.server import ServerState

from ..runtime.gateway_settings import Gateway
from .answer_body import Chunk
from .auth import CERTIFICATE
from .exchange import HttpExchange

PROGRESS_BYTES = 64 * 1024
WRITE_HIGH = 64 * 1024
LONGEST_HEAD = 64 * 1024
"""While it is not whole."""
A_TURN = 2
"""More would keep whoever reads waiting: each is a tenth of a millisecond and more."""
MOST_WAITING = 16
"""Calls that one client sent before it was answered."""
FEW_WRONG, WRONG_PAUSE_S, LONGEST_PAUSE_S = 8, 0.1, 1.0
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_WRONG = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: on, and no time for it."""
_MOST_PARTS = 1024
"""Of one write (IOV_MAX)."""


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


def protocol_of(connections: Open, tls: ssl.SSLContext | None = None) -> type[asyncio.Protocol]:
    """For uvicorn's ``http``; TLS is begun by it, not by uvicorn. ``connections``: has admitted them."""

    class Bound(HttpConnection):
        open_ones, context = connections, tls

    return Bound


class HttpConnection(asyncio.Protocol):
    """Made by uvicorn's server, one for each connection. The parser calls what begins with ``on_``."""

    open_ones: Open
    context: ssl.SSLContext | None

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._app, self._state, self._server = config.loaded_app, app_state, server_state
        self._idle_s = config.timeout_keep_alive
        self._address: str | None = None
        """None: it is over."""
        self._transport: asyncio.Transport
        self._socket: socket.socket | None = None
        """To write to past the transport: there is no TLS."""
        self._handshake: asyncio.Task[None] | None = None
        self._parser: httptools.HttpRequestParser | None = None
        """None while TLS is not agreed upon, and when nothing is heard any more."""
        self._early = bytearray()
        """What came with the end of the handshake."""
        self._always: dict[str, Any] = {}
        """Of each scope."""
        self._target, self._headers = b"", list[tuple[bytes, bytes]]()
        self._head_bytes: int | None = None
        """Of a head that is not whole."""
        self._comes: HttpExchange | None = None
        """Whose request is received."""
        self._goes: HttpExchange | None = None
        """Who is answered."""
        self._queue: deque[HttpExchange] = deque()
        """Who asked meanwhile."""
        self._head: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._wrong = 0
        """Calls in a row."""

    # --- how it begins and ends ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = accepted = cast(asyncio.Transport, transport)
        self._address = transport.get_extra_info("peername")[0]
        self._await_head()
        if self.context is None:
            self._socket = transport.get_extra_info("socket")
            self._begin(accepted)
        else:
            accepted.pause_reading()  # what comes now is the handshake's
            self._handshake = self.loop.create_task(self._shake_hands(accepted, self.context))

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
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH)
        self._parser = httptools.HttpRequestParser(self)
        self._server.connections.add(self)  # type: ignore[arg-type]
        local, client = (transport.get_extra_info(each) for each in ("sockname", "peername"))
        self._always = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "server": local[:2],
            "client": client[:2],
            "scheme": "http" if self.context is None else "https",
            "root_path": "",
        }
        if certificate := transport.get_extra_info("peercert"):
            self._always[CERTIFICATE] = certificate

    def connection_lost(self, exc: Exception | None) -> None:
        self._parser = None
        self._server.connections.discard(self)
        for timer in (self._head, self._idle, self._stalled):
            if timer is not None:
                timer.cancel()
        for each in (self._comes, self._goes, *self._queue):
            if each is not None:
                each.leave()
        self._queue.clear()
        self._writable.set()
        if self._address is not None:
            self.open_ones.leave(self._address)
            self._address = None

    def shutdown(self) -> None:
        """No call is taken any more; by uvicorn."""
        if self._goes is None:
            self._transport.close()
        else:
            self._goes.keeps_alive = False

    def give_up(self) -> None:
        """Reset: what was not sent is thrown away, also by the kernel."""
        self.open_ones.reset += 1
        made: socket.socket | None = self._transport.get_extra_info("socket")
        if made is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()

    def abort(self) -> None:
        self._transport.abort()

    # --- what comes ---------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            if self._handshake is not None and not self._always:
                self._early += data
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # it is answered as any other, and what follows may be no HTTP
            self._hear_no_more()
        except httptools.HttpParserError:
            self._refuse()
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            self._await_head()
            if self._head_bytes > LONGEST_HEAD:
                self._refuse()

    def on_message_begin(self) -> None:
        self._target, self._headers, self._head_bytes = b"", [], 0
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def on_url(self, target: bytes) -> None:
        self._target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """What it raises is the parser's error."""
        assert self._parser is not None
        version, headers = self._parser.get_http_version(), self._headers
        hosts = [name for name, _ in headers].count(b"host")
        if hosts > 1 or version not in ("1.0", "1.1") or (version == "1.1" and not hosts):
            raise ValueError("no host, more than one, or another version")
        if len(self._queue) == MOST_WAITING:
            raise ValueError("too many calls at a time")
        self._headers, self._head_bytes = [], None  # what follows a body is no header
        if self._head is not None:
            self._head.cancel()
            self._head = None
        path, _, query = self._target.partition(b"?")
        text = path.decode("ascii")
        scope = {
            **self._always,
            "http_version": version,
            "method": self._parser.get_method().decode("ascii"),
            "path": unquote(text) if "%" in text else text,
            "raw_path": path,
            "query_string": query,
            "headers": headers,
            "state": self._state.copy(),
        }
        self._comes = HttpExchange(
            self,
            scope,
            keeps_alive=version == "1.1" and self._parser.should_keep_alive(),
            waits_to_go_on=any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers),
        )
        if self._goes is None:
            self._answer(self._comes)
        else:
            self._queue.append(self._comes)
            self.pause_reading()

    def on_body(self, body: bytes) -> None:
        assert self._comes is not None
        self._comes.add(body)

    def on_message_complete(self) -> None:
        assert self._comes is not None
        self._comes.end()
        self._comes = None

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._queue and self._parser is not None:
            self._transport.resume_reading()

    def _hear_no_more(self) -> None:
        """Who asked is answered."""
        self._parser, self._head_bytes = None, None
        self._transport.pause_reading()
        last = self._queue[-1] if self._queue else self._goes
        if last is not None:
            last.keeps_alive = False

    def _refuse(self) -> None:
        """What came is no HTTP. Who asked before is answered."""
        broken, self._comes = self._comes, None
        if broken is not None:
            broken.leave()
            if broken in self._queue:
                self._queue.remove(broken)
        self._hear_no_more()
        if self._goes is not None and self._goes is broken and broken.is_sent:
            self.give_up()
        elif self._goes is None or self._goes is broken:
            self.write([_WRONG])
            self._transport.close()

    def _await_head(self) -> None:
        if self._head is None:
            self._head = self.loop.call_later(
                self.open_ones.settings.head_timeout, self.open_ones.end, self.loop, self._give_up_head
            )

    def _give_up_head(self) -> None:
        if self._head is not None and self._address is not None:
            self.give_up()

    # --- what goes ----------------------------------------------------------------------------------------------------

    def _answer(self, exchange: HttpExchange) -> None:
        self._goes = exchange
        pause = pause_of(self._wrong)
        self.open_ones.slowed += pause > 0
        task = self.loop.create_task(exchange.answer(self._app, pause))
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    def begun(self, status: int) -> None:
        self._wrong = self._wrong + 1 if _is_wrong(status) else 0

    def over(self, exchange: HttpExchange) -> None:
        self._server.total_requests += 1
        self._goes = None
        if not exchange.keeps_alive:
            self._transport.close()
        elif self._queue:
            self._answer(self._queue.popleft())
        elif self._head_bytes is None:
            self._idle = self.loop.call_later(self._idle_s, self._transport.close)
        self.resume_reading()

    def common_headers(self) -> Iterable[tuple[bytes, bytes]]:
        return self._server.default_headers

    def write(self, parts: Sequence[Chunk]) -> None:
        """In one piece, as far as the socket takes it."""
        transport, taken = self._transport, 0
        if transport.is_closing():
            return
        if self._socket is not None and not transport.get_write_buffer_size():
            with suppress(OSError):  # it is full; or the transport finds out
                taken = os.writev(self._socket.fileno(), parts[:_MOST_PARTS])
        left = list[Chunk]()
        for part in parts:
            if taken < len(part):
                left.append(memoryview(part)[taken:] if taken else part)
            taken = max(0, taken - len(part))
        if left:
            transport.write(b"".join(left))

    async def drain(self) -> None:
        await self._writable.wait()

    def pause_writing(self) -> None:
        self._writable.clear()
        self._watch_writing()

    def resume_writing(self) -> None:
        self._writable.set()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _watch_writing(self) -> None:
        waiting = self._transport.get_write_buffer_size()

        def look() -> None:
            if waiting - self._transport.get_write_buffer_size() < PROGRESS_BYTES:
                self.give_up()
            else:
                self._watch_writing()

        self._stalled = self.loop.call_later(self.open_ones.settings.write_timeout, look)


def pause_of(wrong: int) -> float:
    """Seconds before the call that comes after so many wrong ones."""
    return min(max(0, wrong - FEW_WRONG) * WRONG_PAUSE_S, LONGEST_PAUSE_S)


def _is_wrong(status: int) -> bool:
    """What would be refused again. Not 429: that caller is told to come again."""
    return 400 <= status < 500 and status != 429
