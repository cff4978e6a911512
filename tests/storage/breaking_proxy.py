"""A loopback HTTP proxy in front of an S3 server that does what a breaker (`breakers.py`) tells it to.

A breaker is a function that gets a request and the way to the server behind, and gives the answer. It may change
either, send others, or send none. Path-style addresses: ``/bucket/key``.

moto looks for the key of a conditional write and then writes, without a lock: two writers win, rarely. The breaker is
under test, so only one write or delete of an object passes to the server at a time.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit


@dataclass(frozen=True)
class Request:
    """A request; its ``headers`` have lower-case names."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""

    @property
    def key(self) -> str:
        """The key of the object; empty for requests about the bucket."""
        return unquote(self.path).partition("/")[2].partition("/")[2]

    @property
    def is_put(self) -> bool:
        """Return whether it puts one object, whole."""
        return self.method == "PUT" and not self.query

    @property
    def is_part(self) -> bool:
        return self.method == "PUT" and "partNumber" in self.query

    @property
    def is_complete(self) -> bool:
        return self.method == "POST" and "uploadId" in self.query

    @property
    def is_abort(self) -> bool:
        return self.method == "DELETE" and "uploadId" in self.query

    @property
    def is_listing(self) -> bool:
        return self.method == "GET" and "list-type" in self.query

    @property
    def is_read(self) -> bool:
        """Return whether it is a GET or HEAD of an object."""
        return self.method in ("GET", "HEAD") and bool(self.key)

    def without(self, header: str) -> Request:
        return replace(self, headers={name: value for name, value in self.headers.items() if name != header})

    def another(self, method: str, query: dict[str, str] | None = None, body: bytes = b"") -> Request:
        """Send a request of the proxy's own, with the credentials of this one."""
        headers = {name: value for name, value in self.headers.items() if name in ("authorization", "host")}
        return Request(method, self.path, query or {}, headers, body)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""

    def of(self, name: str) -> str:
        return next((value for header, value in self.headers if header.lower() == name.lower()), "")

    def telling(self, name: str, value: str) -> Answer:
        others = [each for each in self.headers if each[0].lower() != name.lower()]
        return replace(self, headers=[*others, (name, value)])


Server = Callable[[Request], Answer]
Breaker = Callable[[Request, Server], Answer]


def error(status: int, code: str) -> Answer:
    return Answer(status, [("Content-Type", "application/xml")], f"<Error><Code>{code}</Code></Error>".encode())


def no_break(request: Request, server: Server) -> Answer:
    return server(request)


class BreakingProxy:
    """A proxy that forwards to ``upstream`` through ``breaker``, which may be replaced at any time."""

    def __init__(self, upstream: str) -> None:
        self.breaker: Breaker = no_break
        host = urlsplit(upstream).netloc
        proxy = self

        one_at_a_time = threading.Lock()

        def server(request: Request) -> Answer:
            with one_at_a_time if request.method in ("PUT", "POST", "DELETE") else nullcontext():
                return forwarded(request)

        def forwarded(request: Request) -> Answer:
            connection = http.client.HTTPConnection(host)
            target = request.path + (f"?{urlencode(request.query)}" if request.query else "")
            headers = request.headers | {"content-length": str(len(request.body))}
            connection.request(request.method, target, request.body, headers)
            answer = connection.getresponse()
            full_answer = Answer(answer.status, answer.getheaders(), answer.read())
            connection.close()
            return full_answer

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                path, _, query = self.path.partition("?")
                headers = {name.lower(): value for name, value in self.headers.items()}
                if headers.pop("expect", ""):
                    self.send_response_only(100)
                    self.end_headers()
                body = self.rfile.read(int(headers.get("content-length", 0)))
                request = Request(self.command, path, dict(parse_qsl(query, keep_blank_values=True)), headers, body)
                answer = proxy.breaker(request, server)
                self.send_response_only(answer.status)
                for name, value in answer.headers:
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                length = answer.of("content-length") if self.command == "HEAD" else str(len(answer.body))
                if answer.status != 204:
                    self.send_header("Content-Length", length or "0")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body)

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
