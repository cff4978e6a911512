"""A client of librdkafka that keeps working when its secrets change.

user, password   are passed to the client: it logs in with them from its next connection on, open ones stay
a TLS file       librdkafka reads it once, so another client replaces this one; while the new files cannot be used,
                 this one stays in use
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaException

from ..runtime.live_secret import files_state
from .kafka_access import tls_files
from .sasl import speaks_sasl


class LiveClient:
    """``make`` creates a client from the configuration that ``config`` derives from the properties. Thread-safe."""

    def __init__(
        self,
        kafka: Mapping[str, str],
        make: Callable[[dict[str, Any]], Any],
        config: Callable[[Mapping[str, str]], dict[str, Any]],
    ) -> None:
        """Make no client before `now` asks for it."""
        self._kafka, self._make, self._config = kafka, make, config
        self._lock = threading.Lock()
        self._client: Any = None
        self._login: tuple[str, str] = ("", "")
        self._files: object = None

    def now(self) -> Any:
        """Return the client. A previous client works as long as a caller keeps it."""
        with self._lock:
            login, files = self._login_now(), files_state(tls_files(self._kafka))
            if self._client is None:
                self._client = self._make(self._config(self._kafka))
            elif files != self._files:
                try:
                    self._client = self._make(self._config(self._kafka))
                except KafkaException:  # not all files are replaced yet: the next change starts another attempt
                    login = self._login
            elif login != self._login:
                self._client.set_sasl_credentials(*login)
            self._login, self._files = login, files
            return self._client

    def forget(self, client: Any) -> None:
        """Make another client at the next `now`: this one is broken."""
        with self._lock:
            if self._client is client:
                self._client = None

    def close(self) -> None:
        """Send what a producer has. An admin client has no close, and ends when no one holds it."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None and hasattr(client, "flush"):
            client.flush(5)

    def _login_now(self) -> tuple[str, str]:
        if not speaks_sasl(self._kafka):
            return "", ""
        return self._kafka.get("sasl.username", ""), self._kafka.get("sasl.password", "")
