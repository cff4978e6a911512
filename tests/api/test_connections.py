"""The limits of a connection: too many of them, slow heads, readers that stop, answers that break off."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPResponse
from pathlib import Path

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from tests.api.certificates import certificates
from tests.api.gateways import RECORDS, MemoryReader, Running
from tests.api.served import served
from tests.scenarios.house import eventually
from tierstate.api.media import BATCHES
from tierstate.runtime.gateway_settings import GatewayTls

pytestmark = pytest.mark.extended

Serve = Callable[..., Running]
HEAD = b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def reader() -> MemoryReader:
    memory = MemoryReader()
    for _ in range(12):
        memory.append(b"k", b"v" * 1_000_000)
    return memory


@contextmanager
def connected(running: Running) -> Iterator[socket.socket]:
    address = running.server.address
    with socket.create_connection((address.host, address.port), timeout=30) as client:
        yield client


def status_of(client: socket.socket) -> int:
    """Ask for the topics, and take the whole answer."""
    client.sendall(HEAD)
    answer = HTTPResponse(client)
    answer.begin()
    answer.read()
    return answer.status


def ended(client: socket.socket) -> str:
    """Read everything up to the end, and return how the server ended the connection."""
    try:
        while client.recv(65536):
            pass
    except ConnectionResetError:
        return "reset"
    return "closed"


def dribbled(client: socket.socket) -> int:
    """Return how many bytes of a head, of at most a thousand, could be sent."""
    for count in range(1000):
        try:
            client.sendall(b"x")
        except OSError:
            return count
        time.sleep(0.02)
    return 1000


def test_connections_beyond_the_limit_are_refused_and_the_others_go_on(serve: Serve, reader: MemoryReader) -> None:
    running = serve(reader, connections=3)
    with ExitStack() as opened:
        clients = [opened.enter_context(connected(running)) for _ in range(3)]
        assert [status_of(client) for client in clients] == [200] * 3
        with connected(running) as late:
            late.sendall(HEAD)
            answer = late.recv(1000)
            assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
            assert b"\r\nretry-after: 1\r\n" in answer
            assert ended(late) == "closed"
        assert [status_of(client) for client in clients] == [200] * 3
        clients[0].close()

        def again() -> bool:
            with connected(running) as late:
                return status_of(late) == 200

        eventually(again)


@pytest.fixture
def tls(tmp_path: Path) -> GatewayTls:
    identity = certificates(tmp_path, "gateway").with_name("gateway.pem")
    return GatewayTls(certificate=identity, key=identity)


@contextmanager
def shaken(running: Running) -> Iterator[ssl.SSLSocket]:
    """Yield a connection whose handshake is over."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with connected(running) as plain, context.wrap_socket(plain) as wrapped:
        yield wrapped


def test_new_clients_see_a_renewed_certificate_and_no_call_fails(
    serve: Serve, reader: MemoryReader, tls: GatewayTls, tmp_path: Path
) -> None:
    running = serve(reader, tls=tls)
    (tmp_path / "next").mkdir()
    renewed = certificates(tmp_path / "next", "gateway").with_name("gateway.pem")

    def answers(client: ssl.SSLSocket) -> bytes:
        assert status_of(client) == 200
        return client.getpeercert(binary_form=True) or b""

    with shaken(running) as kept:
        before = answers(kept)
        assert tls.certificate is not None
        renewed.replace(tls.certificate)
        shown = set()
        for _ in range(5):
            with shaken(running) as client:
                shown.add(answers(client))
        assert len(shown) == 1
        assert before not in shown
        assert answers(kept) == before


def test_a_request_that_comes_with_the_end_of_its_handshake_is_answered(
    serve: Serve, reader: MemoryReader, tls: GatewayTls
) -> None:
    """The client sends both in one packet."""
    running = serve(reader, tls=tls)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for _ in range(20):
        into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(into, out)
        with connected(running) as plain:
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    if out.pending:
                        plain.sendall(out.read())
                    into.write(plain.recv(65536))
            client.write(HEAD)
            plain.sendall(out.read())  # Finished, and the request
            answer = b""
            while not answer:
                into.write(plain.recv(65536))
                with suppress(ssl.SSLWantReadError):
                    answer = client.read(65536)
            assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", [b"", b"GET /v1/topics HTTP/1.1\r\n"])
def test_a_head_that_does_not_come_ends_its_connection(serve: Serve, reader: MemoryReader, sent: bytes) -> None:
    running = serve(reader, head_timeout=0.3)
    with connected(running) as client:
        client.sendall(sent)
        assert ended(client) == "reset"


def test_bytes_that_dribble_in_do_not_keep_a_connection(serve: Serve, reader: MemoryReader) -> None:
    """This holds before the first request and after one."""
    running = serve(reader, head_timeout=0.5)
    with connected(running) as first, connected(running) as second:
        second.sendall(HEAD)
        assert second.recv(20).startswith(b"HTTP/1.1 200")
        assert dribbled(first) < 1000
        assert dribbled(second) < 1000


def test_a_reader_that_stops_is_reset_and_a_slow_one_gets_everything(serve: Serve, reader: MemoryReader) -> None:
    running = serve(reader, write_timeout=1.0)
    request = f"GET {RECORDS}?offset=0&max_bytes=12000000 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with connected(running) as stopped, connected(running) as slow:
        for client in (stopped, slow):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            client.sendall(request)
        eventually(lambda: running.service.memory.used > 0)
        taken = b""
        while not taken.endswith(b"0\r\n\r\n") and (piece := slow.recv(60_000)):
            taken = taken[-10:] + piece
            time.sleep(0.02)  # it takes three times the time that a client may go without reading
        assert taken.endswith(b"0\r\n\r\n")
        assert ended(stopped) == "reset"
    eventually(lambda: running.service.memory.used == 0)


def test_an_answer_has_its_memory_until_the_client_has_it(serve: Serve, reader: MemoryReader) -> None:
    """This holds also for an answer sent in one message, after which no further send would wait."""
    running = serve(reader)
    request = f"GET {RECORDS}?offset=0&max_bytes=12000000 HTTP/1.1\r\nHost: localhost\r\nAccept: {BATCHES}\r\n\r\n"
    with connected(running) as client:
        client.sendall(request.encode())
        assert client.recv(20).startswith(b"HTTP/1.1 200")
        time.sleep(0.3)
        assert running.service.memory.used > 0
        left = 10_500_000
        while left > 0:
            left -= len(client.recv(1 << 20))
        eventually(lambda: running.service.memory.used == 0)


async def breaks_off(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})
    await asyncio.sleep(0.05)
    raise RuntimeError("in the middle")


def test_an_answer_that_cannot_be_finished_is_reset_and_not_ended() -> None:
    """A client of HTTP/1.0 would take a clean end for a complete answer."""
    with served(breaks_off) as address, socket.create_connection(address, timeout=30) as client:
        client.sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert client.recv(20).startswith(b"HTTP/1.1 200")
        assert ended(client) == "reset"


def test_readers_are_answered_while_hundreds_of_others_have_stopped(serve: Serve, reader: MemoryReader) -> None:
    running = serve(reader, memory=64 << 20)
    request = f"GET {RECORDS}?offset=0&max_bytes=12000000 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with ExitStack() as opened, ThreadPoolExecutor(4) as pool:
        for _ in range(200):
            opened.enter_context(connected(running)).sendall(request)
        eventually(lambda: running.service.memory.refused > 20)
        url = f"{running.server.url}/v1/topics/t/partitions/0"
        answers = list(pool.map(lambda _: httpx.get(url, timeout=30).status_code, range(40)))
        assert answers == [200] * 40
