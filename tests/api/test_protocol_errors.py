"""Requests that are no calls at all, and the cache headers of every answer of /v1, on real connections."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests.api.gateways import MemoryReader, Running
from tests.api.test_connections import HEAD, connected, ended
from tests.scenarios.house import eventually
from tierstate.runtime.gateway_settings import GatewayAuth

pytestmark = pytest.mark.extended

Serve = Callable[..., Running]


def answer_of(client: socket.socket) -> tuple[int, dict[str, str], Any]:
    """Return status, headers and JSON of an answer that ends its connection."""
    data = b""
    while piece := client.recv(65536):
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines), json.loads(body)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST"])
@pytest.mark.parametrize("path", ["/", "/v1/topics", "/v1/plans"])
@pytest.mark.parametrize("auth", [GatewayAuth(), GatewayAuth(basic=True, rights="gateway")])
def test_a_call_with_two_lengths_is_refused_and_ends_its_connection(
    serve: Serve, method: str, path: str, auth: GatewayAuth
) -> None:
    """The rest may be a second request, which is smuggled past a proxy (RFC 9112, 6.1)."""
    lines = (f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Length: 0", "Transfer-Encoding: chunked", "", "")
    with connected(serve(MemoryReader(), auth=auth)) as client:
        client.sendall("\r\n".join(lines).encode() + b"0\r\n\r\n")
        assert client.recv(65536).split(b"\r\n")[0] == b"HTTP/1.1 400 Bad Request"
        assert ended(client) in ("closed", "reset")


@pytest.mark.parametrize(
    "wrong",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n bad: header\r\n: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
    ],
    ids=["words", "header", "no host", "length", "large head", "coding"],
)
def test_what_is_no_http_is_answered_with_a_problem(serve: Serve, wrong: bytes) -> None:
    with connected(serve(MemoryReader())) as client:
        client.sendall(wrong)
        status, headers, problem = answer_of(client)
    assert (status, problem["error_code"], problem["error"]) == (400, 40050, "InvalidRequest")
    assert (headers["content-type"], headers["cache-control"]) == ("application/json", "no-store")


def test_a_connection_too_many_is_answered_with_a_problem(serve: Serve) -> None:
    running = serve(MemoryReader(), connections=1)
    with ExitStack() as opened:
        opened.enter_context(connected(running)).sendall(b"GET ")
        eventually(lambda: running.server.open_connections == 1)
        late = opened.enter_context(connected(running))
        late.sendall(HEAD)
        status, headers, problem = answer_of(late)
    assert (status, problem["error_code"], headers["retry-after"]) == (503, 50350, "1")


def test_no_answer_about_topics_is_kept_by_a_cache(serve: Serve) -> None:
    """Offsets move, and an answer depends on the rights of its caller."""
    running = serve(MemoryReader())
    running.service.reader.append(None, b"x")  # type: ignore[attr-defined]
    below = ("", "/t", "/t/summary", "/t/partitions", "/t/times", "/t/groups", "/t/facts", "/t/partitions/0")
    more = ("segments", "agent", "offsets?timestamp=0", "records?offset=0", "records?offset=9")
    for path in (*below, *(f"/t/partitions/0/{name}" for name in more), "/unknown"):
        for method in ("GET", "OPTIONS"):
            answer = httpx.request(method, f"{running.server.url}/v1/topics{path}")
            assert answer.headers.get_list("cache-control") == ["no-store"], path
    assert httpx.get(f"{running.server.url}/").headers["cache-control"] == "no-cache", "a page may be asked for again"
