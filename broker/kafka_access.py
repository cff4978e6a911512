"""The access of this process to its cluster: librdkafka's properties, whose secrets may change, and login results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..runtime.listener import Listener, ignore
from ..runtime.live_secret import LiveSecret
from ..runtime.login_watch import LoginWatch
from ..state.errors import AccessDenied
from .oauth import PREFIX, token_source, user_of
from .sasl import OAUTHBEARER, Login, own_mechanism

TLS_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")


class KafkaAccess(Mapping[str, str]):
    """A mapping of properties. A property from a file or a command always has its current value. Thread-safe."""

    def __init__(
        self, kafka: Mapping[str, str], live: Mapping[str, LiveSecret] | None = None, listener: Listener = ignore
    ) -> None:
        """``live``: the properties whose values may change, by name."""
        self._kafka, self._live = dict(kafka), dict(live or {})
        self.logins = LoginWatch("kafka", listener)
        self.tokens = token_source(self)

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
        self.tokens.refused()
        user, mechanism = self._who()
        self.logins.refused(server, user, mechanism, str(reason))
        facts = {"broker": server, "user": user, "mechanism": mechanism, "reason": reason}
        return AccessDenied("the login at Kafka fails", **facts)

    def accepts(self, server: str) -> None:
        """Record that a broker accepted the login."""
        self.logins.accepted(server, self._who()[0])

    def _who(self) -> tuple[str, str]:
        """Return user and mechanism. Without SASL, the certificate's path takes the place of the user."""
        mechanism = own_mechanism(self)
        if mechanism is None:
            return self.get("ssl.certificate.location", ""), "TLS"
        return user_of(self) if mechanism == OAUTHBEARER else self.get("sasl.username", ""), mechanism


def access_of(kafka: Mapping[str, str]) -> KafkaAccess:
    """Return the properties as a `KafkaAccess`: the same object if ``kafka`` is one already."""
    return kafka if isinstance(kafka, KafkaAccess) else KafkaAccess(kafka)


def own_login(kafka: Mapping[str, str]) -> Login | None:
    """Return the login that the properties describe, with a valid token, or None without SASL.

    Raises InvalidRequest for other mechanisms, and the errors of `TokenSource.now`.
    """
    mechanism = own_mechanism(kafka)
    if mechanism is None:
        return None
    if mechanism == OAUTHBEARER:
        token = access_of(kafka).tokens.now()
        return Login(mechanism, "", token.value, extensions=tuple(token.extensions.items()))
    return Login(mechanism, kafka.get("sasl.username", ""), kafka.get("sasl.password", ""))


def librdkafka_properties(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a client of librdkafka. With OAUTHBEARER it gets its tokens from the `TokenSource`,
    unless there is an ``oauth_cb`` already.

    A first token is asked for here, because librdkafka waits ten seconds for one, and then names no reason.
    Raises the errors of `TokenSource.now`.
    """
    mechanism = str(kafka.get("sasl.mechanism") or kafka.get("sasl.mechanisms")).upper()
    if mechanism != OAUTHBEARER or "oauth_cb" in kafka:
        return dict(kafka)
    tokens = access_of(kafka).tokens
    tokens.now()
    return {"oauth_cb": tokens.for_librdkafka} | {n: value for n, value in kafka.items() if not n.startswith(PREFIX)}


def tls_files(kafka: Mapping[str, str]) -> list[str]:
    """Return the files that `framed_socket.tls_context` and librdkafka read when they create a client."""
    return [kafka[name] for name in TLS_FILES if kafka.get(name) and kafka[name] != "probe"]
