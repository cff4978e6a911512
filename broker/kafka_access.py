"""How this process reaches its cluster: librdkafka's properties, whose secrets may change, and results of logins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..runtime.listener import Listener, ignore
from ..runtime.live_secret import LiveSecret
from ..runtime.login_watch import LoginWatch
from ..state.errors import AccessDenied
from .sasl import own_login, speaks_sasl

TLS_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")


class KafkaAccess(Mapping[str, str]):
    """A mapping of properties. One that comes from a file or a command has its current value. Thread-safe."""

    def __init__(
        self, kafka: Mapping[str, str], live: Mapping[str, LiveSecret] | None = None, listener: Listener = ignore
    ) -> None:
        """``live``: the properties that are read again, by name."""
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
        """Count that a login at a broker (``host:port``) failed, and return the error that names it."""
        for each in self._live.values():
            each.renew()
        user, mechanism = self._who()
        self.logins.refused(server, user, mechanism, str(reason))
        facts = {"broker": server, "user": user, "mechanism": mechanism, "reason": reason}
        return AccessDenied("the login at Kafka fails", **facts)

    def accepts(self, server: str) -> None:
        """Note that a broker accepted our login."""
        self.logins.accepted(server, self._who()[0])

    def _who(self) -> tuple[str, str]:
        """Return user and mechanism. Without SASL the certificate is our identity."""
        if speaks_sasl(self):
            login = own_login(self)
            return (login.user, login.mechanism) if login is not None else ("", "")
        return self.get("ssl.certificate.location", ""), "TLS"


def access_of(kafka: Mapping[str, str]) -> KafkaAccess:
    """Return the properties as a `KafkaAccess`: the same object if they are one already."""
    return kafka if isinstance(kafka, KafkaAccess) else KafkaAccess(kafka)


def tls_files(kafka: Mapping[str, str]) -> list[str]:
    """Return the files that `framed_socket.tls_context` and librdkafka read when a client is made."""
    return [kafka[name] for name in TLS_FILES if kafka.get(name) and kafka[name] != "probe"]
