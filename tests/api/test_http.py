"""How an answer is sent: in one piece, in order, without a copy, and never shorter than it should be."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tests.api.served import served

GET = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
LAST = b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
LARGE = 8 << 20


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the request that came; some paths answer in their own way."""
    match scope["path"]:
        case "/pieces":

            async def pieces() -> AsyncIterator[bytes]:
                for piece in (b"one", b"", b"two"):
                    yield piece
                    await asyncio.sleep(0.01)

            await StreamingResponse(pieces())(scope, receive, send)
        case "/fails":
            raise RuntimeError("of a test")
        case "/short" | "/long":
            length = b"1000000" if scope["path"] == "/short" else b"1"
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            await asyncio.sleep(0.05)
            await send({"type": "http.response.body", "body": b"y"})
        case "/view":
            data = bytearray(b"a" * LARGE)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": memoryview(data), "more_body": True})
            await asyncio.sleep(0.05)
            data[:] = b"b" * LARGE
            await send({"type": "http.response.body", "body": b""})
        case path:
            body = await Request(scope, receive).body()
            if path == "/slow":
                await asyncio.sleep(0.2)
            text = f"{scope['method']} {path} {scope['query_string'].decode()} {len(body)}"
            await Response(text, media_type="text/plain")(scope, receive, send)


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    with served(app) as listening:
        yield listening


@contextmanager
def connected(address: tuple[str, int]) -> Iterator[socket.socket]:
    with socket.create_connection(address, timeout=60) as client:
        yield client


def everything(client: socket.socket) -> bytes:
    """Return all bytes up to the end of the connection. Raises ConnectionResetError if it is reset."""
    data = b""
    while piece := client.recv(1 << 20):
        data += piece
    return data


def asked(address: tuple[str, int], *sent: bytes, pause: float = 0.0) -> bytes:
    with connected(address) as client:
        for piece in sent:
            client.sendall(piece)
            time.sleep(pause)
        return everything(client)


def bodies(answers: bytes) -> list[bytes]:
    """Return the bodies of answers that state their length."""
    parts = []
    while answers:
        head, _, answers = answers.partition(b"\r\n\r\n")
        (size,) = (int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"content-length: "))
        parts.append(answers[:size])
        answers = answers[size:]
    return parts


def test_requests_that_come_together_are_answered_in_their_order(address: tuple[str, int]) -> None:
    paths = [b"/slow?n=1", b"/b?n=2", b"/slow?n=3", b"/c%20d"]
    answer = asked(address, *[b"".join(GET.replace(b"/a", path) for path in paths) + LAST])
    expected = [b"GET /slow n=1 0", b"GET /b n=2 0", b"GET /slow n=3 0", b"GET /c d  0", b"GET /a  0"]
    assert bodies(answer) == expected


def test_a_client_that_expects_100_continue_gets_it(address: tuple[str, int]) -> None:
    with connected(address) as client:
        client.sendall(b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"abc" + LAST)
        assert bodies(everything(client)) == [b"POST /p  3", b"GET /a  0"]


def test_a_body_of_unknown_length_comes_in_chunks(address: tuple[str, int]) -> None:
    head, _, body = asked(address, LAST.replace(b"/a", b"/pieces")).partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head.lower()
    assert body == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"


def test_to_an_old_client_it_comes_up_to_the_end(address: tuple[str, int]) -> None:
    head, _, body = asked(address, b"GET /pieces HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    assert b"transfer-encoding" not in head.lower()
    assert body == b"onetwo"


def test_a_head_request_gets_no_body_and_the_connection_goes_on(address: tuple[str, int]) -> None:
    answer = asked(address, GET.replace(b"GET", b"HEAD") + GET.replace(b"GET /a", b"HEAD /pieces") + LAST)
    first, second, last, body = answer.split(b"\r\n\r\n")
    assert b"content-length: 10" in first
    assert second.startswith(b"HTTP/1.1 200")
    assert last.startswith(b"HTTP/1.1 200")
    assert body == b"GET /a  0"


def test_a_failure_before_the_first_byte_is_a_server_error(address: tuple[str, int]) -> None:
    assert asked(address, GET.replace(b"/a", b"/fails")).startswith(b"HTTP/1.1 500 Internal Server Error\r\n")


@pytest.mark.parametrize("path", [b"/short", b"/long"])
def test_an_answer_that_is_not_as_long_as_it_says_is_reset_or_never_sent(address: tuple[str, int], path: bytes) -> None:
    try:
        answer = asked(address, GET.replace(b"/a", path))
    except ConnectionResetError:
        return
    assert answer.startswith(b"HTTP/1.1 500")


def test_data_that_is_being_sent_may_change_in_the_next_iteration(address: tuple[str, int]) -> None:
    """The data may be a view of the chunk cache, which does not count its readers."""
    with connected(address) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.sendall(LAST.replace(b"/a", b"/view"))
        time.sleep(0.2)
        answer = everything(client)
    assert answer.count(b"a" * LARGE) == 1
