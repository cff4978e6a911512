"""One call over HTTP/1.1 and its answer, as the app sees them (ASGI).

    a body without a length    chunked; to a client of HTTP/1.0 up to the connection's end
    small parts                go out with what follows them in the same turn of the loop

When `send` returns from the last byte the client has all but `connections.WRITE_HIGH` of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Protocol

from starlette.types import ASGIApp, Message, Scope

from .answer_body import Chunk
from .service import ClientLeft

log = logging.getLogger(__name__)
SOME_BYTES = 64 * 1024
"""Of an answer: from so many on they are sent, and the client is waited for. Of a request: nothing more is read."""
_STATUS = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_FAILED = b"Internal Server Error"


class Carrier(Protocol):
    """What is needed of a connection."""

    def write(self, parts: Sequence[Chunk]) -> None: ...

    async def drain(self) -> None:
        """Until what it holds is little, or nobody is there any more."""
        ...

    def common_headers(self) -> Iterable[tuple[bytes, bytes]]: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def begun(self, status: int) -> None: ...

    def over(self, exchange: HttpExchange) -> None:
        """Its last byte was written."""
        ...

    def give_up(self) -> None:
        """An answer cannot be finished."""
        ...

    def abort(self) -> None: ...


class HttpExchange:
    """By the loop alone. ``keeps_alive``: whether another call may follow."""

    def __init__(self, carrier: Carrier, scope: Scope, *, keeps_alive: bool, waits_to_go_on: bool) -> None:
        """``waits_to_go_on``: the client wants to be told so before it sends the body."""
        self.scope, self.keeps_alive = scope, keeps_alive
        self.whole = False
        """Whether all of the request is there."""
        self.is_sent = self.is_over = False
        """Whether any of the answer is on its way; whether all of it is."""
        self._carrier, self._waits_to_go_on = carrier, waits_to_go_on
        self._gone = False
        self._received = bytearray()
        self._told_whole = False
        self._news = asyncio.Event()
        self._begun = self._chunked = self._bodiless = False
        self._missing: int | None = None
        """Of the length that the head says."""
        self._parts: list[Chunk] = []
        self._size = 0
        self._flushing: asyncio.Handle | None = None

    # --- what comes ---------------------------------------------------------------------------------------------------

    def add(self, body: bytes) -> None:
        if self.is_over:
            return  # nobody reads it
        self._received += body
        if len(self._received) > SOME_BYTES:
            self._carrier.pause_reading()
        self._news.set()

    def end(self) -> None:
        self.whole = True
        self._news.set()

    def leave(self) -> None:
        """The client has left."""
        self._gone = True
        self._parts.clear()
        self._news.set()

    # --- what goes ----------------------------------------------------------------------------------------------------

    async def answer(self, app: ASGIApp, pause_s: float) -> None:
        """``pause_s``: the client has to wait so long first."""
        try:
            if pause_s > 0:
                await asyncio.sleep(pause_s)
            await app(self.scope, self.receive, self.send)
            if not self.is_over and not self._gone:
                raise RuntimeError("an answer was not finished")
        except ClientLeft:
            self._carrier.abort()
        except BaseException as error:
            log.error("a call failed", exc_info=error)
            if self.is_sent and not self.is_over:
                self._carrier.give_up()
            elif not self.is_over:
                await self._fail()

    async def receive(self) -> Message:
        if self._waits_to_go_on and not self._begun:
            self._waits_to_go_on = False
            self._carrier.write([_CONTINUE])
        while not (self._gone or self.is_over):
            if self._received or (self.whole and not self._told_whole):
                self._told_whole = self.whole
                body, self._received = bytes(self._received), bytearray()
                self._carrier.resume_reading()
                return {"type": "http.request", "body": body, "more_body": not self.whole}
            self._news.clear()
            await self._news.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self._gone:
            return
        if message["type"] == "http.response.start":
            self._begin(message["status"], message.get("headers", ()))
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if not self._parts or (self._size >= SOME_BYTES and (more or len(body) >= SOME_BYTES)):
            await self._flush()
        self._take(body, more)
        if more:
            if self._flushing is None:
                self._flushing = asyncio.get_running_loop().call_soon(self._write)
            return
        await self._flush()
        if not self._gone:
            self.is_over = True
            self._news.set()
            self._carrier.over(self)

    def _begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._begun = True
        self._carrier.begun(status)
        lines = [_STATUS[status]]
        for name, value in (*self._carrier.common_headers(), *headers):
            lines.append(b"%b: %b\r\n" % (name, value))
            if name == b"content-length":
                self._missing = int(value)
        self._bodiless = self.scope["method"] == "HEAD" or status in (204, 304)
        if self._bodiless:
            self._missing = None
        elif self._missing is None and self.scope["http_version"] == "1.1":
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        elif self._missing is None:
            self.keeps_alive = False
        if not self.keeps_alive:
            lines.append(b"connection: close\r\n")
        head = b"".join(lines)
        if not head.count(b"\n") == head.count(b"\r") == len(lines):
            raise RuntimeError("a header of the answer has more than one line")
        self._append(head + b"\r\n")

    def _take(self, body: Chunk, more: bool) -> None:
        if self._bodiless:
            return
        if self._missing is not None:
            self._missing -= len(body)
            if self._missing < 0 or (self._missing and not more):
                raise RuntimeError("an answer is not as long as it says")
        if self._chunked and body:
            self._append(b"%x\r\n" % len(body))
        if body:
            self._append(body)
        if self._chunked:
            self._append((b"\r\n" if body else b"") + (b"" if more else b"0\r\n\r\n"))

    def _append(self, part: Chunk) -> None:
        self._parts.append(part)
        self._size += len(part)

    def _write(self) -> None:
        """What is there, before anything waits: it may be a view of what is not kept."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        parts, self._parts, self._size = self._parts, [], 0
        if parts:
            self.is_sent = True
            self._carrier.write(parts)

    async def _flush(self) -> None:
        self._write()
        await self._carrier.drain()

    async def _fail(self) -> None:
        """Nothing of an answer has gone out: what was made of one is thrown away."""
        self._parts, self._size = [], 0
        self._begun = self._chunked = False
        self._missing, self.keeps_alive = None, False
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(_FAILED))]
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": _FAILED})
