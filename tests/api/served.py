"""The gateway's protocol with a test's own app, on a socket."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp

from tests.scenarios.house import eventually
from tierstate.api.accepting_server import AcceptingServer
from tierstate.api.connections import Open
from tierstate.api.open import listen_at
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway
from tierstate.runtime.setting_types import Address


@contextmanager
def served(app: ASGIApp) -> Iterator[tuple[str, int]]:
    """Serve the app on loopback; yield its address."""
    with listen_at(Address("127.0.0.1", 0)) as listening:
        server = AcceptingServer(app, Open(Gateway()), listening, SystemClock())
        address: tuple[str, int] = listening.getsockname()
        serving = threading.Thread(target=server.run)
        serving.start()
        try:
            eventually(lambda: server.started)
            yield address
        finally:
            server.should_exit = True
            serving.join(20)
