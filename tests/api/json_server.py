"""An HTTP server of the test's own that answers JSON, as a management port does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class JsonServer(ThreadingHTTPServer):
    """``answers``: the documents by path; another path is answered with 404. ``asked``: the number of requests."""

    def __init__(self, answers: Mapping[str, object]) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.answers, self.asked = answers, 0
        self.address = f"127.0.0.1:{self.server_address[1]}"


class _Answer(BaseHTTPRequestHandler):
    server: JsonServer

    def do_GET(self) -> None:
        self.server.asked += 1
        body = json.dumps(self.server.answers.get(self.path)).encode()
        self.send_response(200 if self.path in self.server.answers else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def json_server(answers: Mapping[str, object]) -> Iterator[JsonServer]:
    with JsonServer(answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
