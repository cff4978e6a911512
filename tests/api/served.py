"""The gateway's server in front of an app of a test, on a socket."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp

from tests.scenarios.house import eventually
from tierstate.api.connections import Connections, http_server
from tierstate.runtime.gateway_settings import Gateway
from tierstate.runtime.listening import listen_at
from tierstate.runtime.setting_types import Address


@contextmanager
def served(app: ASGIApp) -> Iterator[tuple[str, int]]:
    """Serve the app on loopback; yield its address."""
    with listen_at(Address("127.0.0.1", 0), "gateway") as listening:
        server = http_server(app, Connections(Gateway()))
        address: tuple[str, int] = listening.getsockname()
        serving = threading.Thread(target=server.run, args=([listening],))
        serving.start()
        try:
            eventually(lambda: server.started)
            yield address
        finally:
            server.should_exit = True
            serving.join(20)
