"""The peer of `gateway.py`: answers that lie in memory, by the gateway's own kind of server."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from starlette.types import Receive, Scope, Send

from tierstate.api.connections import Connections, http_server
from tierstate.api.open import listen_at
from tierstate.runtime.gateway_settings import Gateway
from tierstate.runtime.setting_types import Address


def serve(answers: Path, media_type: str) -> None:
    """``answers`` is a file: a line of JSON with their sizes and their paths, then the bytes."""
    with answers.open("rb") as file:
        sizes, paths = json.loads(file.readline())
        bodies = {path: file.read(size) for path, size in zip(paths, sizes, strict=True)}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = bodies[f"{scope['path']}?{scope['query_string'].decode()}"]
        headers = [(b"content-type", media_type.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    sock = listen_at(Address("127.0.0.1", 0))
    print(f"http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
    http_server(app, Connections(Gateway())).run([sock])


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2])
