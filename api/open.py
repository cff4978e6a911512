"""Opening of the gateway: a server that listens, from settings and a reader."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable

from ..app.operating.plans import Plans
from ..broker.callers import Callers
from ..broker.sasl import DEFAULT_MECHANISM
from ..fetch.reader import LogReader
from ..log import loaded_kernels as loaded_kernels  # at import, not at the first call: compiling takes seconds
from ..runtime.appended_lines import AppendedLines
from ..runtime.clock import Clock
from ..runtime.gateway_settings import Gateway, Registry
from ..runtime.listener import Listener, ignore
from ..runtime.listening import listen_at, server_tls
from ..runtime.metrics import Metrics
from ..runtime.service import Service
from ..runtime.setting_types import Address
from ..runtime.watchdog import alive, loop
from ..state.errors import InvalidSettings
from ..values.registered_values import open_registered_values
from .access_log import AccessLog
from .app import create_app
from .connections import Connections, http_server
from .service import FetchService

log = logging.getLogger(__name__)
LOOK_S = 0.1
"""Seconds between two checks whether to stop."""


class GatewayServer:
    """A server whose port is bound when it is constructed, and which serves while its `process` runs."""

    def __init__(
        self, service: FetchService, settings: Gateway, mechanism: str = DEFAULT_MECHANISM, listener: Listener = ignore
    ) -> None:
        """``mechanism``: as in `create_app`. Raises InvalidSettings as `open_gateway`."""
        tls = settings.tls
        context = server_tls("gateway", tls.certificate, tls.key, tls.client_ca)
        path = settings.access_log
        self._lines = None if path is None else AppendedLines(path, "gateway.access_log", _warn)
        access = AccessLog(service.clock, listener, None if self._lines is None else self._lines.write)
        self.service, self.connections = service, Connections(settings)
        self._socket = listen_at(settings.listen, "gateway")
        app = create_app(service, settings.auth.mechanism or mechanism, access)
        self._server = http_server(app, self.connections, context)
        self.address = Address(settings.listen.host, self._socket.getsockname()[1])
        """The address that the server listens on, with the real port."""
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://{self.address}"

    @property
    def open_connections(self) -> int:
        return len(self._server.server_state.connections)

    def process(self) -> Service:
        """Return the service whose thread runs the server. The caller starts, stops and joins it."""
        return Service("gateway", self._serve)

    def close(self) -> None:
        self._socket.close()
        if self._lines is not None:
            self._lines.close()

    def _serve(self, stopping: threading.Event) -> None:
        with loop("gateway"):
            asyncio.run(self._serve_until(stopping))

    async def _serve_until(self, stopping: threading.Event) -> None:
        """Serve until ``stopping`` is set. Then long polls end at once, and uvicorn finishes the other answers."""
        serving = asyncio.ensure_future(self._server.serve(sockets=[self._socket]))
        while not serving.done():
            alive()
            if stopping.is_set():
                self.service.tail.close()
                self._server.should_exit = True
            await asyncio.wait([serving], timeout=LOOK_S)
        await serving


def open_gateway(
    reader: LogReader,
    settings: Gateway,
    clock: Clock,
    hidden: Iterable[str] = (),
    callers: Callers | None = None,
    listener: Listener = ignore,
    plans: Plans | None = None,
    groups: Callers | None = None,
    registry: Registry | None = None,
) -> GatewayServer:
    """Return a server. ``hidden``: topics that are never served, such as the tier-state topic. ``callers`` asks brokers
    about callers, ``groups`` about consumer groups. ``plans`` makes plans for readers without a key to the bucket.
    ``plans`` None: the gateway makes no plans. ``registry``: the schema registry.

    Raises MissingExtra if packages for the registry are missing. Raises InvalidSettings if the address is taken, if TLS
    files or tokens cannot be used, or if the settings do not pass `auth.check`.
    """
    auth = settings.auth
    if auth.asks and callers is None and (auth.rights == "kafka" or auth.by_login):
        raise InvalidSettings(
            [
                "gateway.auth.rights: brokers without SASL know no users, so nobody's rights can be asked for: set it "
                "to gateway, and basic and oauthbearer to false"
            ]
        )
    values = None if registry is None else open_registered_values(registry, clock)
    service = FetchService(reader, settings, clock, hidden, callers, plans, groups, values)
    mechanism = DEFAULT_MECHANISM if callers is None else callers.mechanism
    return GatewayServer(service, settings, mechanism, listener)


def feed_gateway_metrics(metrics: Metrics, server: GatewayServer) -> None:
    connections, memory = server.connections, server.service.memory
    for status in ("200", "429", "500", "503"):
        metrics.begin("tierstate_gateway_answers_total", status)
    metrics.tally("tierstate_gateway_dropped_connections_total", lambda: [((), connections.dropped)])
    metrics.gauge("tierstate_gateway_connections", lambda: [((), server.open_connections)])
    metrics.gauge("tierstate_gateway_memory_bytes", lambda: [((), memory.used)])


def _warn(event: str, **facts: object) -> None:
    log.warning("%s: %s", event, facts)
