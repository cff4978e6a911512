"""Signed URLs in a network with a proxy: the environment names the proxy, which sees only addresses."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.broker.guarded import self_signed
from tierstate.fetch.gateway import GatewayClient
from tierstate.fetch.gateway_plans import GatewayGrants

BODY = bytes(range(256)) * 300


class _Object(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, format: str, *args: object) -> None:
        """Write no line for a request."""


class _Proxy(BaseHTTPRequestHandler):
    """Answers CONNECT alone, and keeps all requests and all bytes that pass."""

    server: Proxying

    def do_CONNECT(self) -> None:
        self.server.asked.append(f"{self.path} {dict(self.headers)}")
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port))) as there:
            self.send_response(200)
            self.end_headers()
            answering = threading.Thread(target=self._passed, args=(there, self.connection))
            answering.start()
            self._passed(self.connection, there)
            answering.join()
        self.close_connection = True

    def _passed(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self.server.passed.append(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def log_message(self, format: str, *args: object) -> None:
        """Write no line for a request."""


class Proxying(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Proxy)
        self.asked: list[str] = []
        self.passed: list[bytes] = []


@contextmanager
def served(server: ThreadingHTTPServer) -> Iterator[str]:
    with server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run a store with TLS, whose authority the machine trusts; yield its address."""
    authority, identity = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Object)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with served(server) as at:
        yield at


@pytest.mark.parametrize("bypassed", [False, True])
def test_a_signed_url_is_asked_for_by_the_proxy_of_the_environment(
    store: str, monkeypatch: pytest.MonkeyPatch, bypassed: bool
) -> None:
    proxy = Proxying()
    with served(proxy) as at:
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, f"http://{at}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, "127.0.0.1" if bypassed else "")
        client = GatewayClient("https://gateway.example", token="secret")
        grants = GatewayGrants(client, "")
        for _ in range(2):
            answer = grants.open(f"https://{store}/log?signature=of-somebody", {})
            assert (answer.status, answer.read()) == (200, BODY)
            answer.release_conn()
        grants.close()
        client.close()
    assert {line.partition(" ")[0] for line in proxy.asked} == (set() if bypassed else {store})
    traffic = "".join(proxy.asked).encode() + b"".join(proxy.passed)
    for secret in (b"signature", b"secret"):
        assert secret not in traffic
