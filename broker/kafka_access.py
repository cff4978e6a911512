"""The access of this process to its cluster: librdkafka's properties, whose secrets may change, and login results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..runtime.listener import Listener, ignore
from ..runtime.live_secret import LiveSecret
from ..runtime.login_watch import LoginWatch
from ..state.errors import AccessDenied
from .sasl import own_login, speaks_sasl

TLS_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")


class KafkaAccess(Mapping[str, str]):
    """A mapping of properties. A property from a file or a command always has its current value. Thread-safe."""

    def __init__(
        self, kafka: Mapping[str, str], live: Mapping[str, LiveSecret] | None = None, listener: Listener = ignore
    ) -> None:
        """``live``: the properties whose values may change, by name."""
        self._kafka, self._live = dict(kafka), dict(live or {})
        self.logins = LoginWatch("kafka", listener)

    def __getitem__(self, name: str) -> str:
        return self._live[name].now() if name in self._live else self._kafka[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kafka)

    def __len__(self) -> int:
        return len(self._kafka)

    def use(self, user: str, password: str) -> None:
        """Log in with this user and password from the next connection on."""
        self._live = {}
        self._kafka = {**self._kafka, "sasl.username": user, "sasl.password": password}

    def refuses(self, server: str, reason: object) -> AccessDenied:
        """Record that a broker (``host:port``) refused a login, renew the secrets, and return the error to raise."""
        for each in self._live.values():
            each.renew()
        user, mechanism = self._who()
        self.logins.refused(server, user, mechanism, str(reason))
        facts = {"broker": server, "user": user, "mechanism": mechanism, "reason": reason}
        return AccessDenied("the login at Kafka fails", **facts)

    def accepts(self, server: str) -> None:
        """Record that a broker accepted the login."""
        self.logins.accepted(server, self._who()[0])

    def _who(self) -> tuple[str, str]:
        """Return user and mechanism. Without SASL, the certificate's path takes the place of the user."""
        if speaks_sasl(self):
            login = own_login(self)
            return (login.user, login.mechanism) if login is not None else ("", "")
        return self.get("ssl.certificate.location", ""), "TLS"


def access_of(kafka: Mapping[str, str]) -> KafkaAccess:
    """Return the properties as a `KafkaAccess`: the same object if ``kafka`` is one already."""
    return kafka if isinstance(kafka, KafkaAccess) else KafkaAccess(kafka)


def tls_files(kafka: Mapping[str, str]) -> list[str]:
    """Return the files that `framed_socket.tls_context` and librdkafka read when they create a client."""
    return [kafka[name] for name in TLS_FILES if kafka.get(name) and kafka[name] != "probe"]
