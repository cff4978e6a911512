"""A loopback HTTP proxy in front of an S3 server that loses answers, cuts bodies and asks to slow down."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

Fault = Callable[[str, str], str | None]
"""``fault(method, path)``: None, "lose the answer", "deliver twice", "cut the body", "drop the range",
"drop the condition", "403", "409", "412", "500" or "503"."""

_ERRORS = {
    "403": "AccessDeniedException",
    "409": "ConditionalRequestConflict",
    "412": "PreconditionFailed",
    "500": "InternalError",
    "503": "SlowDown",
}


class FaultyProxy:
    """A proxy that forwards to ``upstream``; ``fault`` may be replaced at any time. ``requests`` counts them by method.

    ``seen`` has path and headers of every request, in order.
    """

    def __init__(self, upstream: str) -> None:
        self.fault: Fault = lambda method, path: None
        self.requests: dict[str, int] = {}
        self.seen: list[tuple[str, dict[str, str]]] = []
        host = urlsplit(upstream).netloc
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                proxy.requests[self.command] = proxy.requests.get(self.command, 0) + 1
                proxy.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                fault = proxy.fault(self.command, self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if fault in _ERRORS:
                    self._answer(int(fault), [], f"<Error><Code>{_ERRORS[fault]}</Code></Error>".encode())
                    return
                headers = dict(self.headers.items())
                if fault == "drop the range":
                    headers.pop("Range", None)
                if fault == "drop the condition":
                    headers.pop("If-None-Match", None)
                for _ in range(2 if fault == "deliver twice" else 1):
                    upstream_connection = http.client.HTTPConnection(host)
                    upstream_connection.request(self.command, self.path, body, headers)
                    answer = upstream_connection.getresponse()
                    data = answer.read()
                    upstream_connection.close()
                if fault == "lose the answer":
                    self.close_connection = True
                elif fault == "cut the body":
                    self._answer(answer.status, answer.getheaders(), data, cut=len(data) // 2)
                    self.close_connection = True
                else:
                    self._answer(answer.status, answer.getheaders(), data)

            def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, cut: int | None = None) -> None:
                self.send_response_only(status)
                length = next((value for name, value in headers if name.lower() == "content-length"), str(len(data)))
                for name, value in headers:
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                self.send_header("Content-Length", length)
                self.end_headers()
                self.wfile.write(b"" if self.command == "HEAD" else data[:cut])

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing, to keep the output of tests short."""

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
