"""Limits of a request's body, on real connections; and which proxies may say how a request came."""

from __future__ import annotations

import socket
from collections.abc import Callable

import httpx
import pytest

from tests.api.gateways import MemoryReader, Running
from tests.api.test_connections import connected, ended
from tierstate.runtime.gateway_settings import GatewayAuth

pytestmark = pytest.mark.extended

Serve = Callable[..., Running]
MIB = 2**20


def head(method: str, *headers: str) -> bytes:
    path = "/v1/plans" if method == "POST" else "/v1/topics"
    lines = (f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers, "", "")
    return "\r\n".join(lines).encode()


def status(client: socket.socket) -> str:
    return client.recv(65536).split(b"\r\n")[0].decode().partition(" ")[2]


@pytest.mark.parametrize("method", ["POST", "GET"])
@pytest.mark.parametrize("headers", [(f"Content-Length: {700 * MIB}",), ("Transfer-Encoding: chunked",)])
def test_a_body_that_no_call_takes_is_refused_before_it_is_there(
    serve: Serve, method: str, headers: tuple[str, ...]
) -> None:
    running = serve(MemoryReader())
    with connected(running) as client:
        client.sendall(head(method, *headers))
        if "chunked" in headers[0]:
            client.sendall(b"10001\r\n" + bytes(0x10001))
        assert status(client)[:3] == "413"
        assert ended(client) in ("closed", "reset"), "what follows would be the rest of the body"
    assert running.server.service.memory.used == 0


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_half_a_body_holds_its_connection_no_longer_than_half_a_head(serve: Serve, method: str) -> None:
    running = serve(MemoryReader(), head_timeout=0.3)
    with connected(running) as client:
        client.sendall(head(method, "Content-Length: 100") + b'{"ranges"')
        assert status(client) == "408 Request Timeout"
        assert ended(client) in ("closed", "reset")
    assert running.server.service.memory.used == 0


def test_a_length_that_is_given_in_two_ways_ends_the_connection(serve: Serve) -> None:
    with connected(serve(MemoryReader())) as client:
        client.sendall(head("POST", "Content-Length: 3", "Transfer-Encoding: chunked") + b"3\r\n{}\n\r\n0\r\n\r\n")
        assert status(client) == "400 Bad Request"
        assert ended(client) in ("closed", "reset")


def test_an_anonymous_call_is_answered_before_its_body_is_read(serve: Serve) -> None:
    running = serve(MemoryReader(), auth=GatewayAuth(basic=True, rights="gateway"))
    with connected(running) as client:
        client.sendall(head("POST", "Content-Length: 100"))
        assert status(client)[:3] == "401"
    assert running.server.service.memory.most_used == 0


def test_bodies_are_counted_as_memory_of_the_gateway(serve: Serve) -> None:
    running = serve(MemoryReader(), memory=16 * MIB)
    held = running.server.service.memory.hold()
    held.resize(16 * MIB - 10)
    with connected(running) as client:
        client.sendall(head("POST", "Content-Length: 100"))
        assert status(client) == "429 Too Many Requests"
    held.release()


@pytest.mark.parametrize(
    ("trusted", "believed"),
    [((), False), (("10.0.0.0/8",), False), (("127.0.0.1",), True), (("127.0.0.0/8",), True)],
)
def test_only_a_trusted_proxy_may_say_that_a_request_came_by_tls(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, trusted: tuple[str, ...], believed: bool
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    running = serve(MemoryReader(), trusted_proxies=trusted)
    answer = httpx.get(f"{running.server.url}/v1/topics", headers={"X-Forwarded-Proto": "https"})
    assert answer.status_code == 200
    assert ("strict-transport-security" in answer.headers) is believed


@pytest.mark.parametrize(
    "wrong",
    [
        {"ranges": [{"topic": "t", "partition": True}]},
        {"ranges": [{"topic": "t", "partition": "0"}]},
        {"ranges": [{"topic": "t", "partition": 0.0}]},
        {"ranges": [{"topic": "t", "partition": 0, "start": True}]},
        {"ranges": [{"topic": "t", "partition": 0, "end": "5"}]},
        {"ranges": [{"topic": "t", "partition": 0}], "split_bytes": "4096"},
        {"ranges": [{"topic": "t", "partition": 0}], "lease_seconds": True},
        {"ranges": [{"topic": "t", "partition": 0}], "lease_seconds": "60"},
    ],
)
def test_a_number_of_a_body_is_a_number_of_json(serve: Serve, wrong: dict[str, object]) -> None:
    answer = httpx.post(f"{serve(MemoryReader()).server.url}/v1/plans", json=wrong)
    assert (answer.status_code, answer.json()["error_code"]) == (400, 40051), answer.text


@pytest.mark.parametrize("seconds", [0, 60, 0.5])
def test_whole_seconds_of_a_body_are_seconds(serve: Serve, seconds: float) -> None:
    right = {"ranges": [{"topic": "t", "partition": 0, "start": 0, "end": None}], "lease_seconds": seconds}
    answer = httpx.post(f"{serve(MemoryReader()).server.url}/v1/plans", json=right)
    assert answer.json()["message"] == "this gateway makes no plans", "it was read"
