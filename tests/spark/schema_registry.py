"""A schema registry on a real socket: what `GET /schemas/ids/<id>` of Confluent's answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass
class Registry:
    """``asked``: every path, in order. ``headers``: of the last request."""

    url: str
    asked: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)


@contextmanager
def registry(answers: Mapping[int, tuple[int, Mapping[str, Any]]]) -> Iterator[Registry]:
    """``answers``: status and body by id; 404 for any other."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append(self.path)
            made.headers = dict(self.headers)
            id = self.path.removeprefix("/schemas/ids/")
            status, body = answers.get(int(id), (404, {"error_code": 40403}))
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Registry(f"http://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
