"""A schema registry on a real socket: Confluent's answers about schemas by id and by version of a subject."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Answer = tuple[int, Any]
"""Status and body; bytes are sent as they are."""


@dataclass
class Registry:
    """``asked``: every path, in order. ``headers``: of the last request. ``before``: called with the path first."""

    url: str
    answers: dict[str, Answer]
    asked: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    before: Callable[[str], None] = lambda path: None
    importing: set[str] = field(default_factory=set)
    """The subjects in mode IMPORT."""


@contextmanager
def registry(answers: Mapping[int | str, Answer]) -> Iterator[Registry]:
    """``answers`` are by id, or by path with its query; any other path gets 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append(self.path)
            made.headers = dict(self.headers)
            made.before(self.path)
            status, body = made.answers.get(self.path, (404, {"error_code": 40403}))
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", body)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_PUT(self) -> None:
            made.importing.add(self.path.partition("?")[0].removeprefix("/mode/"))
            self._send(200, self._body())

        def do_DELETE(self) -> None:
            made.importing.discard(self.path.removeprefix("/mode/"))
            self._send(200, {})

        def do_POST(self) -> None:
            """Register a version. As Confluent's registry does, take an id in mode IMPORT only."""
            subject, body = self.path.split("/")[2], self._body()
            made.asked.append(f"POST {self.path}")
            made.before(self.path)
            if subject not in made.importing:
                self._send(422, {"error_code": 42205, "message": "not in mode IMPORT"})
                return
            names = made.answers.setdefault("/subjects", (200, []))[1]
            versions = made.answers.setdefault(f"/subjects/{subject}/versions", (200, []))[1]
            names += [] if subject in names else [subject]
            versions.append(body["version"])
            made.answers[f"/subjects/{subject}/versions/{body['version']}"] = 200, {"subject": subject, **body}
            self._send(200, {"id": body["id"]})

        def _body(self) -> Any:
            return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

        def _send(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = _Server(("127.0.0.1", 0), Handler)
    by_path = {f"/schemas/ids/{each}" if isinstance(each, int) else each: answer for each, answer in answers.items()}
    made = Registry(f"http://127.0.0.1:{server.server_port}", by_path)
    thread = Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error: the client has left."""
