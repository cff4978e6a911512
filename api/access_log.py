"""Reports each call under `/v1` when its answer ends: to the metrics, and as one line of JSON in the access log.

    {"time": "2026-01-01T00:00:00Z", "user": "ann", "client": "10.0.0.7",
     "path": "/v1/topics/orders/partitions/0/records", "status": 200, "bytes": 10485760, "seconds": 0.213,
     "tier": "remote", "first_offset": 0, "next_offset": 45000}

``user``: the name in the credentials, also if the brokers refuse a Kafka user's password later. It is empty without
authentication, or if the gateway itself refuses the credentials. ``bytes``: the bytes of the body that were sent.
``tier`` and offsets are there only if records were answered. The query is left out, because it may hold search terms.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from starlette.types import Message, Scope

from ..runtime.clock import Clock
from ..runtime.listener import GatewayAnswered, Listener, ignore
from ..state.offsets import moment

ACCESS = "tierstate.access"
"""Key of an ASGI scope: the `LoggedCall`, or None outside `/v1`."""


class AccessLog:
    """Reports every call to ``listener``, and writes it as a line with ``write`` (None: there is no access log)."""

    def __init__(self, clock: Clock, listener: Listener = ignore, write: Callable[[str], None] | None = None) -> None:
        self.clock, self.listener, self.write = clock, listener, write

    def begun(self, scope: Scope) -> LoggedCall:
        client = scope.get("client")
        return LoggedCall(self, client[0] if client else "", scope["path"])


class LoggedCall:
    """A call, from its request to the end of its answer."""

    def __init__(self, log: AccessLog, client: str, path: str) -> None:
        self._log, self._client, self._path = log, client, path
        self._began = log.clock.monotonic()
        self._status = self._bytes = 0
        self.user = self._topic = ""
        self._read: dict[str, Any] = {}

    def reads(self, topic: str, log_fields: dict[str, Any]) -> None:
        """Note the topic that is read. ``log_fields``: fields for the line, such as the tier and the offsets."""
        self._topic, self._read = topic, log_fields

    def sent(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
        else:
            self._bytes += len(message.get("body", b""))

    def over(self) -> None:
        clock = self._log.clock
        seconds = clock.monotonic() - self._began
        self._log.listener(
            GatewayAnswered(self._status, self._bytes, seconds, self.user, self._topic, self._read.get("tier", ""))
        )
        if self._log.write is None:
            return
        time = moment(clock.now_ms())
        line = {
            "time": time,
            "user": self.user,
            "client": self._client,
            "path": self._path,
            "status": self._status,
            "bytes": self._bytes,
            "seconds": round(seconds, 3),
        }
        self._log.write(json.dumps(line | self._read))
