"""What a connection may cost: too many, slow heads, readers that stop, and answers that break off."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import httpx
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from tests.api.gateways import RECORDS, MemoryReader, Running
from tests.scenarios.house import eventually
from tierstate.api.connections import Open, protocol_of
from tierstate.runtime.gateway_settings import Gateway

Serve = Callable[..., Running]
HEAD = b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def reader() -> MemoryReader:
    made = MemoryReader()
    for _ in range(12):
        made.append(b"k", b"v" * 1_000_000)
    return made


@contextmanager
def connected(running: Running) -> Iterator[socket.socket]:
    address = running.server.address
    with socket.create_connection((address.host, address.port), timeout=30) as made:
        yield made


def ended(client: socket.socket) -> str:
    """How the server ended it: everything up to that is read."""
    try:
        while client.recv(65536):
            pass
    except ConnectionResetError:
        return "reset"
    return "closed"


def dribbled(client: socket.socket) -> int:
    """Bytes of a head that one could send, of a thousand."""
    for count in range(1000):
        try:
            client.sendall(b"x")
        except OSError:
            return count
        time.sleep(0.02)
    return 1000


@pytest.mark.parametrize("limit", ["connections", "connections_per_address"])
def test_connections_beyond_what_is_allowed_are_told_so_and_the_others_go_on(
    serve: Serve, reader: MemoryReader, limit: str
) -> None:
    running = serve(reader, **{limit: 3})
    with ExitStack() as opened:
        clients = [opened.enter_context(connected(running)) for _ in range(3)]
        for client in clients:
            client.sendall(HEAD)
            assert client.recv(20).startswith(b"HTTP/1.1 200")
        with connected(running) as late:
            assert late.recv(1000).startswith(b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n")
            assert ended(late) == "closed"
        clients[0].close()

        def again() -> bool:
            with connected(running) as late:
                late.sendall(HEAD)
                return late.recv(20).startswith(b"HTTP/1.1 200")

        eventually(again)


@pytest.mark.parametrize("sent", [b"", b"GET /v1/topics HTTP/1.1\r\n"])
def test_a_head_that_does_not_come_ends_its_connection(serve: Serve, reader: MemoryReader, sent: bytes) -> None:
    running = serve(reader, head_timeout=0.3)
    with connected(running) as client:
        client.sendall(sent)
        assert ended(client) == "reset"


def test_bytes_that_dribble_in_do_not_keep_a_connection(serve: Serve, reader: MemoryReader) -> None:
    """Neither before the first request nor after one."""
    running = serve(reader, head_timeout=0.5)
    with connected(running) as first, connected(running) as second:
        second.sendall(HEAD)
        assert second.recv(20).startswith(b"HTTP/1.1 200")
        assert dribbled(first) < 1000
        assert dribbled(second) < 1000


def test_a_reader_that_stops_is_reset_and_a_slow_one_gets_everything(serve: Serve, reader: MemoryReader) -> None:
    running = serve(reader, write_timeout=1.0)
    asked = f"GET {RECORDS}?offset=0&max_bytes=12000000 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with connected(running) as stopped, connected(running) as slow:
        for client in (stopped, slow):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            client.sendall(asked)
        eventually(lambda: running.service.memory.used > 0)
        taken = b""
        while not taken.endswith(b"0\r\n\r\n") and (piece := slow.recv(60_000)):
            taken = taken[-10:] + piece
            time.sleep(0.02)  # it takes three times as long as one may take nothing
        assert taken.endswith(b"0\r\n\r\n")
        assert ended(stopped) == "reset"
    eventually(lambda: running.service.memory.used == 0)


@contextmanager
def breaking_off(said: bytes) -> Iterator[tuple[str, int]]:
    """The gateway's protocol before an app whose answers end in an error behind ``said``; its address."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": said, "more_body": True})
        raise RuntimeError("in the middle")

    config = uvicorn.Config(app, http=protocol_of(Open(Gateway())), lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        serving.start()
        try:
            eventually(lambda: server.started)
            yield listening.getsockname()
        finally:
            server.should_exit = True
            serving.join(20)


def test_an_answer_that_cannot_be_finished_is_reset_and_not_ended() -> None:
    """A client of HTTP/1.0 would take a clean end for the whole."""
    with breaking_off(b"x" * 1_000_000) as address, socket.create_connection(address, timeout=30) as client:
        client.sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert client.recv(20).startswith(b"HTTP/1.1 200")
        assert ended(client) == "reset"


def test_readers_beside_hundreds_that_stopped_are_answered(serve: Serve, reader: MemoryReader) -> None:
    running = serve(reader, memory=64 << 20)
    asked = f"GET {RECORDS}?offset=0&max_bytes=12000000 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with ExitStack() as opened, ThreadPoolExecutor(4) as pool:
        for _ in range(200):
            opened.enter_context(connected(running)).sendall(asked)
        eventually(lambda: running.service.memory.refused > 20)
        url = f"{running.server.url}/v1/topics/t/partitions/0"
        answers = list(pool.map(lambda _: httpx.get(url, timeout=30).status_code, range(40)))
        assert answers == [200] * 40
