"""A broker that answers as a test wants, and a client's end of the proxy before it, in bytes."""

from __future__ import annotations

import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import closing, suppress

from tierstate.proxy.server import ProxyServer

HEARTBEAT, FETCH, PRODUCE = 12, 1, 0


class FakeBroker(socketserver.ThreadingTCPServer):
    """Answer every request by ``answer`` of it; None closes."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        self.answer: Callable[[bytes], bytes | None] = lambda request: request[4:8] + b"\0\0"
        self.got: list[bytes] = []
        self.leaves = False
        super().__init__(("127.0.0.1", 0), Requests)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class Requests(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        broker = self.server
        assert isinstance(broker, FakeBroker)
        with suppress(OSError, struct.error):
            while True:
                (size,) = struct.unpack(">i", self.rfile.read(4))
                request = self.rfile.read(size)
                broker.got.append(request)
                if _acks_none(request):
                    continue
                if (answer := broker.answer(request)) is None:
                    return
                self.wfile.write(answer)
                if broker.leaves:
                    return


def _acks_none(request: bytes) -> bool:
    return request[:2] == b"\0\0" and request[12:14] == b"\0\0"


def connected(proxy: ProxyServer, port: int | None = None) -> socket.socket:
    """Return a connection to the bootstrap listener, or to another port."""
    plain = socket.create_connection(("127.0.0.1", port or proxy.address.port), 20)
    if proxy._tls is None:
        return plain
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(plain)


def request(key: int, version: int, correlation: int, body: bytes = b"") -> bytes:
    """Return a framed request, with an empty client id where the version is not flexible."""
    head = struct.pack(">hhih", key, version, correlation, -1)
    return struct.pack(">i", len(head) + len(body)) + head + body


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def answer_of(connection: socket.socket) -> bytes:
    """Return the next frame; empty when the connection is closed."""
    with suppress(ConnectionError):
        file = connection.makefile("rb")
        head = file.read(4)
        return file.read(struct.unpack(">i", head)[0]) if len(head) == 4 else b""
    return b""


def healthy(proxy: ProxyServer, broker: FakeBroker) -> None:
    """Require that another client is still served."""
    broker.answer = lambda request: framed(request[4:8] + b"fine")
    with closing(connected(proxy)) as other:
        other.sendall(request(12, 0, 99))
        assert answer_of(other) == struct.pack(">i", 99) + b"fine"
