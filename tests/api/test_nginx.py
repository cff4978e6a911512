"""`deploy/nginx.conf`, run by the nginx of this machine in front of two gateways."""

from __future__ import annotations

import json
import select
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.api.gateways import RECORDS, MemoryReader, Running
from tests.api.served import served
from tests.api.test_connections import breaks_off, ended
from tests.scenarios.house import eventually
from tests.servers import nginx_server

pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed: apt-get install nginx-light"),
]

Serve = Callable[..., Running]
PER_ADDRESS = 4


@dataclass(frozen=True)
class Nginx:
    port: int

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, verify=False, timeout=60)

    @contextmanager
    def connected(self, protocol: str = "http/1.1") -> Iterator[ssl.SSLSocket]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols([protocol])
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=30) as plain,
            context.wrap_socket(plain) as made,
        ):
            yield made


@contextmanager
def nginx(folder: Path, *gateways: str) -> Iterator[Nginx]:
    """Run the shipped file with times and limits of the test. ``gateways``: addresses of one or two."""
    changes = {
        "client_header_timeout 10s": "client_header_timeout 1s",
        "send_timeout 30s": "send_timeout 1s",
        "per_address 256": f"per_address {PER_ADDRESS}",
    }
    with nginx_server.nginx(folder, nginx_server.changed(nginx_server.shipped(folder, *gateways), changes)) as port:
        yield Nginx(port)


def address_of(running: Running) -> str:
    return str(running.server.address)


@pytest.fixture
def readers() -> list[MemoryReader]:
    made = [MemoryReader(), MemoryReader()]
    for reader in made:
        for _ in range(12):
            reader.append(b"k", b"v" * 1_000_000)
    return made


@pytest.fixture
def gateways(serve: Serve, readers: list[MemoryReader], tmp_path: Path) -> list[Running]:
    return [
        serve(reader, trusted_proxies=("127.0.0.1",), access_log=tmp_path / f"access-{number}", write_timeout=2.0)
        for number, reader in enumerate(readers)
    ]


@pytest.fixture
def proxied(gateways: list[Running], tmp_path: Path) -> Iterator[Nginx]:
    with nginx(tmp_path, *map(address_of, gateways)) as made:
        yield made


def test_calls_come_by_tls_and_go_to_both_gateways(proxied: Nginx, gateways: list[Running], tmp_path: Path) -> None:
    answers = [proxied.get(f"{RECORDS}?offset={at % 12}&max_bytes=1") for at in range(20)]
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.headers["strict-transport-security"] for answer in answers} == {"max-age=31536000"}
    for number in range(len(gateways)):
        lines = (tmp_path / f"access-{number}").read_text().splitlines()
        assert {json.loads(line)["client"] for line in lines} == {"127.0.0.1"}


def test_clients_may_speak_http_2(proxied: Nginx) -> None:
    with proxied.connected("h2") as client:
        assert client.selected_alpn_protocol() == "h2"
    if shutil.which("curl") is not None:
        command = ["curl", "-sk", "--http2", "-o", "/dev/null", "-w", "%{http_version} %{http_code}"]
        done = subprocess.run([*command, f"{proxied.url}/v1/topics"], capture_output=True, text=True, check=True)
        assert done.stdout == "2 200"


def test_a_slow_head_ends_its_connection(proxied: Nginx) -> None:
    began = time.monotonic()
    with proxied.connected() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        assert ended(client) in ("closed", "reset")
    assert time.monotonic() - began < 10


def test_calls_of_one_address_are_limited_and_a_refused_one_gets_a_problem(
    proxied: Nginx, gateways: list[Running], readers: list[MemoryReader]
) -> None:
    with ThreadPoolExecutor(PER_ADDRESS) as pool:
        polls = [pool.submit(proxied.get, f"{RECORDS}?offset=12&timeout_ms=30000") for _ in range(PER_ADDRESS)]

        def waiting() -> int:
            return sum(watch.waiters for each in gateways for watch in each.service.tail._watches.values())

        eventually(lambda: waiting() == PER_ADDRESS)
        refused = proxied.get(RECORDS)
        for reader in readers:
            reader.append(b"k", b"the end")
        assert {poll.result(60).status_code for poll in polls} == {200}
    assert (refused.status_code, refused.json()["error_code"]) == (503, 50350)
    assert (refused.headers["retry-after"], refused.headers["cache-control"]) == ("2", "no-store")


def test_a_gateway_that_stops_costs_no_call(proxied: Nginx, gateways: list[Running]) -> None:
    assert proxied.get(f"{RECORDS}?offset=0&max_bytes=1").status_code == 200
    assert gateways[0].stop()
    assert {proxied.get(f"{RECORDS}?offset=0&max_bytes=1").status_code for _ in range(20)} == {200}


def test_the_answers_of_the_gateways_pass_unchanged(proxied: Nginx, gateways: list[Running]) -> None:
    for path in (f"{RECORDS}?offset=99", "/v1/topics/none", f"{RECORDS}?offset=0&max_bytes=1"):
        direct, passed = httpx.get(gateways[0].server.url + path), proxied.get(path)
        assert (passed.status_code, passed.content) == (direct.status_code, direct.content)
        assert passed.headers["content-type"] == direct.headers["content-type"]


def test_a_client_that_stops_reading_is_reset_and_costs_no_memory_afterwards(
    proxied: Nginx, gateways: list[Running]
) -> None:
    with proxied.connected() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.sendall(f"GET {RECORDS}?offset=0&max_bytes=12000000 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        states = select.poll()
        states.register(client, 0)
        eventually(lambda: any(state & select.POLLERR for _, state in states.poll(0)))
    eventually(lambda: all(each.service.memory.used == 0 for each in gateways))


def test_an_answer_that_breaks_off_is_never_taken_for_a_whole_one(tmp_path: Path) -> None:
    with ExitStack() as opened:
        host, port = opened.enter_context(served(breaks_off))
        proxied = opened.enter_context(nginx(tmp_path, f"{host}:{port}"))
        with pytest.raises(httpx.RemoteProtocolError):
            proxied.get("/")
        old = opened.enter_context(proxied.connected())
        old.sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert old.recv(20).split()[1] == b"426"


def test_without_a_gateway_calls_get_a_problem(serve: Serve, tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as closed:
        nowhere = f"127.0.0.1:{closed.getsockname()[1]}"
    with nginx(tmp_path, nowhere) as proxied:
        answer = proxied.get("/v1/topics")
    assert (answer.status_code, answer.json()["error_code"], answer.headers["retry-after"]) == (503, 50350, "2")
