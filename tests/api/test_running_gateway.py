"""On a socket: streams, long polls, clients that leave, pools that do not delay each other."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.api.gateways import RECORDS, MemoryReader, Running
from tierstate.api.media import NDJSON
from tierstate.api.open import open_gateway
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway
from tierstate.runtime.setting_types import Address
from tierstate.state.errors import InvalidSettings

Serve = Callable[..., Running]
PATIENCE = 20


@pytest.fixture
def reader() -> MemoryReader:
    memory = MemoryReader()
    for at in range(50):
        memory.append(b"k", b"%d" % at)
    return memory


class Gate:
    """Fetches stop here until the gate opens."""

    def __init__(self) -> None:
        self.reached = threading.Semaphore(0)
        self.open = threading.Event()

    def __call__(self, offset: int) -> None:
        self.reached.release()
        assert self.open.wait(PATIENCE)


def until(true: Callable[[], bool]) -> None:
    for _ in range(PATIENCE * 100):
        if true():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never happened")


def test_a_long_poll_answers_when_a_record_arrives(serve: Serve, reader: MemoryReader) -> None:
    running = serve(reader)
    with ThreadPoolExecutor(1) as pool:
        query = {"offset": "50", "timeout_ms": "20000"}
        waiting = pool.submit(running.client.get, RECORDS, params=query, headers={"accept": NDJSON})
        looks = reader.looks
        until(lambda: reader.looks > looks + 3)
        assert not waiting.done()
        reader.append(b"k", b"new")
        answer = waiting.result(PATIENCE)
    assert json.loads(answer.content)["value"] == "new"
    assert answer.headers["x-next-offset"] == "51"


def test_a_long_poll_ends_empty_after_its_time(serve: Serve, reader: MemoryReader) -> None:
    answer = serve(reader).client.get(RECORDS, params={"offset": "50", "timeout_ms": "150"})
    assert (answer.status_code, answer.content, answer.headers["x-next-offset"]) == (200, b"", "50")


def test_long_polls_hold_no_thread(serve: Serve, reader: MemoryReader) -> None:
    running = serve(reader, local_reads=1, remote_reads=1)
    with ThreadPoolExecutor(10) as pool:
        query = {"offset": "50", "timeout_ms": "20000"}
        waiting = [pool.submit(httpx.get, running.server.url + RECORDS, params=query, timeout=30) for _ in range(10)]
        until(lambda: any(watch.waiters == 10 for watch in running.service.tail._watches.values()))
        assert running.client.get(RECORDS, params={"offset": "0"}).status_code == 200
        reader.append(None, b"end")
        assert {future.result(PATIENCE).headers["x-next-offset"] for future in waiting} == {"51"}
    assert not running.service.tail._watches


def test_a_stopping_gateway_answers_long_polls_at_once(serve: Serve, reader: MemoryReader) -> None:
    running = serve(reader)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(running.client.get, RECORDS, params={"offset": "50", "timeout_ms": "60000"})
        until(lambda: bool(running.service.tail._watches))
        assert running.stop()
        assert waiting.result(PATIENCE).status_code == 200


def test_a_client_that_leaves_a_long_poll_is_forgotten_without_a_word(
    serve: Serve, reader: MemoryReader, caplog: pytest.LogCaptureFixture
) -> None:
    running = serve(reader)
    with socket.create_connection((running.server.address.host, running.server.address.port)) as client:
        client.sendall(f"GET {RECORDS}?offset=50&timeout_ms=60000 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        until(lambda: bool(running.service.tail._watches))
    until(lambda: not running.service.tail._watches)
    assert running.client.get(RECORDS, params={"offset": "0"}).status_code == 200  # by now every log line was written
    assert caplog.messages == []


def test_a_client_that_leaves_before_its_turn_is_never_served(serve: Serve, reader: MemoryReader) -> None:
    gate, offsets = Gate(), []
    running = serve(reader, local_reads=1)
    running.client.get(RECORDS, params={"offset": "50"})

    def before(offset: int) -> None:
        offsets.append(offset)
        gate(offset)

    reader.before = before
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(running.client.get, RECORDS, params={"offset": "1"})
        assert gate.reached.acquire(timeout=PATIENCE)
        with socket.create_connection((running.server.address.host, running.server.address.port)) as client:
            client.sendall(f"GET {RECORDS}?offset=2 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            until(lambda: running.service.pools.local.admitted == 2)
        until(lambda: running.service.pools.local.admitted == 1)
        gate.open.set()
        assert first.result(PATIENCE).status_code == 200
    running.client.get(RECORDS, params={"offset": "3"})
    assert offsets == [1, 3]


def test_a_cold_scan_never_delays_a_hot_read(serve: Serve, reader: MemoryReader) -> None:
    reader.local_start = 40
    running = serve(reader, local_reads=1, remote_reads=2)
    gate = Gate()
    reader.before = lambda offset: gate(offset) if offset < 40 else None
    with ThreadPoolExecutor(4) as pool:
        cold = [pool.submit(httpx.get, f"{running.server.url}{RECORDS}?offset={at}", timeout=30) for at in range(4)]
        for _ in range(2):
            assert gate.reached.acquire(timeout=PATIENCE)
        hot = running.client.get(RECORDS, params={"offset": "45"})
        assert (hot.status_code, hot.headers["x-tier"]) == (200, "local")
        assert not any(future.done() for future in cold)
        gate.open.set()
        assert [future.result(PATIENCE).headers["x-tier"] for future in cold] == ["remote"] * 4


def test_a_time_is_looked_up_while_cold_reads_wait_for_each_other(serve: Serve, reader: MemoryReader) -> None:
    """There are more cold reads than may wait at all."""
    reader.local_start, reader.found = 40, 45
    running = serve(reader, remote_reads=1)
    gate = Gate()
    reader.before = lambda offset: gate(offset) if offset < 40 else None
    with ThreadPoolExecutor(18) as pool:
        cold = [pool.submit(httpx.get, f"{running.server.url}{RECORDS}?offset=0", timeout=30) for _ in range(18)]
        until(lambda: any(future.done() for future in cold))
        answer = running.client.get(f"{RECORDS.removesuffix('records')}offsets", params={"timestamp": "0"})
        assert (answer.status_code, answer.json()["offset"]) == (200, 45)
        read = running.client.get(RECORDS, params={"timestamp": "0"})
        assert (read.status_code, read.headers["x-tier"]) == (200, "local")
        gate.open.set()
    assert sorted(future.result().status_code for future in cold) == [200] * 17 + [429]


def test_more_calls_than_may_wait_are_told_to_come_back(serve: Serve, reader: MemoryReader) -> None:
    running = serve(reader, local_reads=1)
    gate = Gate()
    reader.before = gate
    url = f"{running.server.url}{RECORDS}?offset=0"
    with ThreadPoolExecutor(18) as pool:
        answers = [pool.submit(httpx.get, url, timeout=30) for _ in range(18)]
        until(lambda: any(future.done() for future in answers))
        refused = next(future for future in answers if future.done()).result()
        assert (refused.status_code, refused.json()["error_code"]) == (429, 42950)
        assert refused.headers["retry-after"]
        gate.open.set()
        statuses = sorted(future.result(PATIENCE).status_code for future in answers)
    assert statuses == [200] * 17 + [429]


@pytest.mark.extended
def test_a_slow_reader_of_a_large_answer_holds_no_thread(serve: Serve, reader: MemoryReader) -> None:
    for _ in range(12):
        reader.append(None, bytes(range(256)) * 4000)
    running = serve(reader, local_reads=1, max_bytes=64 * 2**20)
    with running.client.stream("GET", RECORDS, params={"offset": "50", "max_bytes": str(2**30)}) as slow:
        chunks = slow.iter_bytes(1000)
        next(chunks)
        hot = httpx.get(f"{running.server.url}{RECORDS}?offset=3&max_records=1", timeout=PATIENCE)
        assert json.loads(hot.content)["offset"] == 3
        body = b"".join(chunks)
    assert len(body.splitlines()) in (11, 12)
    assert slow.headers["x-next-offset"] == "62"


@pytest.mark.extended
def test_a_client_that_leaves_a_stream_stops_its_encoding(serve: Serve, reader: MemoryReader) -> None:
    for _ in range(12):
        reader.append(None, bytes(range(256)) * 4000)
    running = serve(reader, max_bytes=64 * 2**20)
    with running.client.stream("GET", RECORDS, params={"offset": "50", "max_bytes": str(2**30)}) as slow:
        next(slow.iter_bytes(1000))
    assert running.client.get(RECORDS, params={"offset": "0"}).status_code == 200
    assert running.stop()


def test_an_address_that_is_taken_is_a_wrong_setting(serve: Serve, reader: MemoryReader) -> None:
    taken = serve(reader).server.address
    with pytest.raises(InvalidSettings, match=str(taken.port)):
        open_gateway(reader, Gateway(listen=Address("127.0.0.1", taken.port)), SystemClock())


def test_answers_are_not_held_back_for_the_clients_acknowledgement(serve: Serve, reader: MemoryReader) -> None:
    listening = serve(reader).server._socket
    assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


@pytest.fixture
def small(serve: Callable[..., Running]) -> Running:
    reader = MemoryReader()
    reader.append(b"k", b"v")
    return serve(reader)


def test_head_is_get_without_its_body(small: Running) -> None:
    page = [f"/v1/topics/t/{name}" for name in ("summary", "times", "groups", "facts")]
    for path in ("/v1/topics/t", *page, f"{RECORDS}?offset=0", "/v1/topics/none", "/"):
        whole, head = small.client.get(path), small.client.head(path)
        assert head.content == b""
        assert (head.status_code, head.headers.get("content-length")) == (
            whole.status_code,
            whole.headers.get("content-length"),
        )
        assert small.client.get("/v1/topics").status_code == 200  # on the same connection


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/", "GET, HEAD, OPTIONS"),
        ("/v1/topics/t", "GET, HEAD, OPTIONS"),
        ("/v1/topics/t/groups", "GET, HEAD, OPTIONS"),
        (RECORDS, "GET, HEAD, OPTIONS"),
        ("/v1/plans", "POST, OPTIONS"),
        ("/v1/plans/x", "DELETE, OPTIONS"),
    ],
)
def test_options_says_what_there_is_and_so_does_405(small: Running, path: str, methods: str) -> None:
    answer = small.client.options(path)
    assert (answer.status_code, answer.headers["allow"], answer.content) == (204, methods, b"")
    answer = small.client.put(path)
    assert (answer.status_code, answer.json()["error_code"], answer.headers["allow"]) == (405, 40550, methods)


@pytest.mark.parametrize("path", ["/", "/v1/topics", "/v1/topics/none", f"{RECORDS}?offset=0", "/nothing", "/docs"])
def test_every_answer_says_that_its_type_is_meant(small: Running, path: str) -> None:
    assert small.client.get(path).headers.get_list("x-content-type-options") == ["nosniff"]
