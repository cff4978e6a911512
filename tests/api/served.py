"""The gateway's protocol before an app of a test, on a socket."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from tests.scenarios.house import eventually
from tierstate.api.connections import Open, protocol_of
from tierstate.api.open import listen_at
from tierstate.runtime.gateway_settings import Gateway
from tierstate.runtime.setting_types import Address


@contextmanager
def served(app: ASGIApp) -> Iterator[tuple[str, int]]:
    """Its address."""
    open_ones = Open(Gateway())
    config = uvicorn.Config(app, http=protocol_of(open_ones), loop="asyncio", lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    with listen_at(Address("127.0.0.1", 0)) as listening:
        listening.admit = open_ones.admit
        serving = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        serving.start()
        try:
            eventually(lambda: server.started)
            yield listening.getsockname()
        finally:
            server.should_exit = True
            serving.join(20)
