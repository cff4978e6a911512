"""A client of librdkafka that keeps working when its secrets change.

user, password   are passed to the client, which uses them from its next connection on; open connections stay open
a TLS file       is read by librdkafka only once, so a new client replaces the current client; while the new files
                 cannot be used, the current client stays in use
a bearer token   is renewed by librdkafka; after a broker refused one, a new client replaces the current client
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaException

from ..runtime.live_secret import files_state
from ..state.errors import TierstateError
from .kafka_access import access_of, tls_files
from .sasl import speaks_sasl


class LiveClient:
    """``make`` creates a client from the configuration that ``config`` derives from the properties. Thread-safe."""

    def __init__(
        self,
        kafka: Mapping[str, str],
        make: Callable[[dict[str, Any]], Any],
        config: Callable[[Mapping[str, str]], dict[str, Any]],
    ) -> None:
        """Create no client yet: `now` creates it."""
        self._kafka, self._make, self._config = access_of(kafka), make, config
        self._lock = threading.Lock()
        self._client: Any = None
        self._login: tuple[str, str] = ("", "")
        self._files: object = None

    def now(self) -> Any:
        """Return the client. A previous client works as long as a caller keeps it.

        The first call raises the errors of `librdkafka_properties`."""
        with self._lock:
            login = self._login_now()
            files = files_state(tls_files(self._kafka)), self._kafka.tokens.replaced
            if self._client is None:
                self._client = self._make(self._config(self._kafka))
            elif files != self._files:
                try:
                    self._client = self._make(self._config(self._kafka))
                except KafkaException:  # not all files are replaced yet: the next change starts another attempt
                    login = self._login
                except TierstateError:  # there is no token now: the next call tries again
                    return self._client
            elif login != self._login:
                self._client.set_sasl_credentials(*login)
            self._login, self._files = login, files
            return self._client

    def forget(self, client: Any) -> None:
        """Discard a broken client: the next `now` creates another one."""
        with self._lock:
            if self._client is client:
                self._client = None

    def close(self) -> None:
        """Send a producer's messages, for at most 5 s. An admin client closes when the last reference is deleted."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None and hasattr(client, "flush"):
            client.flush(5)

    def _login_now(self) -> tuple[str, str]:
        if not speaks_sasl(self._kafka):
            return "", ""
        return self._kafka.get("sasl.username", ""), self._kafka.get("sasl.password", "")
