"""Limits of a connection: too many, slow heads, readers that stop, and answers that break off."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from tests.api.certificates import certificates
from tests.api.gateways import RECORDS, MemoryReader, Running
from tests.api.served import served
from tests.scenarios.house import eventually
from tierstate.api.connections import FEW_WRONG, pause_of
from tierstate.api.media import BATCHES
from tierstate.api.outgoing import SMALL_BYTES, BodyParts, Part
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


@pytest.mark.parametrize("limit", ["connections", "connections_per_address"])
def test_connections_beyond_the_limit_are_refused_and_the_others_go_on(
    serve: Serve, reader: MemoryReader, limit: str
) -> None:
    running = serve(reader, **{limit: 3})
    with ExitStack() as opened:
        clients = [opened.enter_context(connected(running)) for _ in range(3)]
        for client in clients:
            client.sendall(HEAD)
            assert client.recv(20).startswith(b"HTTP/1.1 200")
        with connected(running) as late:
            answer = late.recv(1000)
            assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
            assert b"\r\nretry-after: 1\r\n" in answer
            assert ended(late) == "closed"
        clients[0].close()

        def again() -> bool:
            with connected(running) as late:
                late.sendall(HEAD)
                return late.recv(20).startswith(b"HTTP/1.1 200")

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
        client.sendall(HEAD)
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
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


@pytest.mark.parametrize("limit", ["connections", "connections_per_address"])
def test_a_handshake_that_never_ends_is_a_connection(
    serve: Serve, reader: MemoryReader, tls: GatewayTls, limit: str
) -> None:
    """It counts from its first moment, and is given up in the time of a head, also when half of it has come."""
    running = serve(reader, tls=tls, head_timeout=1.0, **{limit: 3})
    with connected(running), connected(running) as halfway, connected(running):
        halfway.sendall(bytes.fromhex("16030100ff01"))  # a record of 255 bytes begins, a ClientHello
        eventually(lambda: running.server.open.count == 3)
        with connected(running) as late:
            assert ended(late) in ("closed", "reset")
        assert running.server.open.refused == 1
        assert ended(halfway) == "reset"
    eventually(lambda: running.server.open.count == 0)
    assert running.server.open.reset >= 1
    with shaken(running) as client:
        client.sendall(HEAD)
        assert client.recv(20).startswith(b"HTTP/1.1 200")
        assert running.server.open.count == 1
    eventually(lambda: running.server.open.count == 0)


def test_a_handshake_that_fails_or_breaks_off_gives_its_place_back(
    serve: Serve, reader: MemoryReader, tls: GatewayTls
) -> None:
    running = serve(reader, tls=tls)
    for sent in (b"", b"GET / HTTP/1.1\r\n\r\n", bytes.fromhex("16030100ff01")):
        with connected(running) as client:
            client.sendall(sent)
            eventually(lambda: running.server.open.count == 1) if sent[:1] != b"G" else None
        eventually(lambda: running.server.open.count == 0)


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


def test_wrong_calls_in_a_row_have_to_wait_and_a_right_one_ends_that(serve: Serve, reader: MemoryReader) -> None:
    running = serve(reader)
    slowed: list[int] = []

    def ask(times: int, offset: str, status: int) -> None:
        for _ in range(times):
            answer = running.client.get(RECORDS, params={"offset": offset, "max_bytes": 1})
            assert answer.status_code == status
        slowed.append(running.server.open.slowed)

    ask(FEW_WRONG + 1, "x", 400)
    ask(2, "x", 400)
    ask(1, "0", 200)
    ask(FEW_WRONG, "x", 400)
    assert slowed == [0, 2, 3, 3]


def test_a_wrong_call_waits_a_second_at_most() -> None:
    assert [pause_of(wrong) for wrong in (0, FEW_WRONG, FEW_WRONG + 1, FEW_WRONG + 1000)] == [0, 0, 0.1, 1.0]


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


@pytest.mark.parametrize("counted", [True, False], ids=["length", "chunked"])
def test_a_body_in_parts_is_one_body(counted: bool) -> None:
    parts: list[Part] = [b"small", memoryview(b"x" * 3 * SMALL_BYTES)[1:], b"", b"the end"]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = BodyParts(parts)
        length = [(b"content-length", str(len(body)).encode())] if counted else []
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": body})

    with served(app) as address:
        answer = httpx.get(f"http://{address[0]}:{address[1]}/", headers={"host": "localhost"})
    assert answer.content == b"".join(parts)


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


@pytest.mark.parametrize("counted", [True, False], ids=["length", "chunked"])
def test_the_end_of_an_answer_does_not_wait_for_the_next_iteration(counted: bool) -> None:
    """The next iteration comes after the answers of all other clients. Here it comes when the client has everything."""
    large, last = b"x" * 2 * SMALL_BYTES, b"the end"
    whole, in_time = threading.Event(), list[bool]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        length = [(b"content-length", str(len(large + last)).encode())] if counted else []
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": large, "more_body": True})
        await send({"type": "http.response.body", "body": last})
        in_time.append(whole.wait(10))

    with served(app) as address, socket.create_connection(address, timeout=30) as client:
        client.sendall(HEAD)
        answer = b""
        while not answer.endswith(last if counted else last + b"\r\n0\r\n\r\n"):
            answer += client.recv(65536)
        whole.set()
        eventually(lambda: in_time)
    assert in_time == [True]


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
