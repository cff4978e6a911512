"""The management port: `/healthz`, `/readyz`, `/metrics`, `/v1/status/TOPIC/PARTITION`, `/v1/epochs/TOPIC/PARTITION`.
Standard library only.

The port has no authentication and shows no record, so it listens on loopback by default. There it answers only requests
whose Host header is an address, ``localhost``, or a name in ``management.advertised`` or ``management.hosts``. So a web
page cannot read from the port by DNS rebinding.
"""

from __future__ import annotations

import ipaddress
import json
import re
import socket
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from ..state.errors import InvalidRequest, InvalidSettings, Unavailable
from .service import Service
from .setting_types import Address

REQUEST_SECONDS = 10.0
"""A client that sends nothing for this long is disconnected."""
LOOK_SECONDS = 0.5
"""Seconds between two checks of the port's thread whether the process stops."""


@dataclass(frozen=True, slots=True)
class Health:
    """Callbacks of the port, called from its threads at every request. They must be fast and may raise typed errors."""

    not_healthy: Callable[[], Sequence[str]]
    """Reasons why a restart would help; empty if healthy."""
    not_ready: Callable[[], Sequence[str]]
    """Reasons why the process must not be relied upon now; empty if ready."""
    metrics: Callable[[], bytes]
    """Prometheus' text format."""
    status: Callable[[str, int], Mapping[str, object] | None]
    """Status of a topic's partition: why it is not copied or not trimmed. None if the process has no such partition."""
    statuses: Callable[[], Sequence[Mapping[str, object]]] = tuple
    """`status` of every partition of this process."""
    epochs: Callable[[str, int], Mapping[str, object] | None] = lambda topic, partition: None
    """The leader epoch checkpoint of a topic's partition on this broker's disk. None if there is no checkpoint."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    content_type: str
    body: bytes


class ManagementServer:
    """Binds its port when constructed, so that a port in use is an error at start-up. Serves while `service` runs."""

    def __init__(
        self, listen: Address, health: Health, advertised: Address | None = None, hosts: Collection[str] = ()
    ) -> None:
        """Bind the port. Raises InvalidSettings. Names of ``advertised`` and ``hosts`` are allowed Host headers."""
        names = {"localhost", listen.host.lower(), *map(str.lower, hosts)}
        names |= {advertised.host.lower()} if advertised else set()
        checked = names if hosts or listen.of_this_machine else None
        handler = type("Handler", (_Handler,), {"health": health, "names": checked})
        kind = _Server6 if ":" in listen.host else _Server
        try:
            self._server = kind((listen.host, listen.port), handler)
        except OSError as error:
            raise InvalidSettings([f"management.listen: cannot listen on {listen}, {error.strerror}"]) from error
        self._server.timeout = LOOK_SECONDS
        self.address = Address(listen.host, self._server.server_address[1])
        """The address with the port that was bound, also if ``listen`` has port 0."""

    def service(self) -> Service:
        return Service("management", self._serve, on_stop=self._wake)

    def close(self) -> None:
        """Release the port. Call it only if the server never served: otherwise its service does so."""
        self._server.server_close()

    def _wake(self) -> None:
        with suppress(OSError):  # the service has already ended by itself
            self._server.socket.shutdown(socket.SHUT_RDWR)  # on Linux this ends the wait for a client at once

    def _serve(self, stopping: threading.Event) -> None:
        try:
            while not stopping.is_set():
                self._server.handle_request()
        finally:
            self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a slow scraper must not hold up the stop

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore the error: it is not worth a log line that a client disconnected."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    health: Health
    names: Collection[str] | None
    """Names that are allowed in the Host header, in addition to addresses. None allows any name."""
    timeout = REQUEST_SECONDS
    server_version = "tierstate"
    sys_version = ""

    def do_GET(self) -> None:
        host = self.headers["host"]
        if self.names is None or host is None or _is_called(host, self.names):
            answer = _answer(self.health, urlsplit(self.path).path)
        else:
            answer = _json(421, {"message": "this port is called by its address, or by a name of management.hosts"})
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Log no request: scrapes are too many."""


def _is_called(host: str, names: Collection[str]) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name in names or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def _answer(health: Health, path: str) -> _Answer:
    try:
        match path.split("/"):
            case ["", "healthz"]:
                return _verdict(health.not_healthy(), "healthy")
            case ["", "readyz"]:
                return _verdict(health.not_ready(), "ready")
            case ["", "metrics"]:
                return _Answer(200, "text/plain; version=0.0.4; charset=utf-8", health.metrics())
            case ["", "v1", "status"]:
                return _json(200, {"partitions": list(health.statuses())})
            case ["", "v1", "status" | "epochs" as what, topic, partition] if re.fullmatch("[0-9]{1,10}", partition):
                ask = health.status if what == "status" else health.epochs
                status = ask(unquote(topic), int(partition))
                return _json(200, status) if status is not None else _json(404, {"message": "no such partition here"})
            case _:
                return _json(404, {"message": "no such page"})
    except Unavailable as error:
        return _json(503, {"message": str(error)})
    except InvalidRequest as error:
        return _json(404, {"message": str(error)})
    except Exception as error:  # the port must answer, also if a callback is broken
        return _json(500, {"message": f"failed with {type(error).__name__}"})


def _verdict(reasons: Sequence[str], good: str) -> _Answer:
    if not reasons:
        return _Answer(200, "text/plain; charset=utf-8", f"{good}\n".encode())
    text = "".join(f"{reason}\n" for reason in reasons)
    return _Answer(503, "text/plain; charset=utf-8", f"not {good}\n{text}".encode())


def _json(status: int, value: Mapping[str, object]) -> _Answer:
    return _Answer(status, "application/json", json.dumps(value, default=str).encode() + b"\n")
