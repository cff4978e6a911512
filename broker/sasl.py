"""The logins of a connection at a broker: by PLAIN, OAUTHBEARER, and SCRAM, also with a delegation token.

PLAIN: RFC 4616. OAUTHBEARER: RFC 7628; tierstate's own tokens are from `oauth.py`. SCRAM: RFC 5802; a login by a
delegation token has the extension ``tokenauth=true`` (KIP-48), the token's id as its user and its HMAC in base64 as its
password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kafka.errors import KafkaError
from kafka.net.sasl.scram import ScramClient

from ..state.errors import AccessDenied, InvalidRequest

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
DEFAULT_MECHANISM = "SCRAM-SHA-256"
MECHANISMS = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
"""The mechanisms of tierstate's own logins."""
_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""The form of a bearer token (RFC 6750, 2.1)."""


@dataclass(frozen=True, slots=True)
class Login:
    """``secret``: the password, the bearer token, or the delegation token's HMAC (``by_token``).

    ``user`` is empty with a bearer token, because the token names its user.
    """

    mechanism: str
    user: str
    secret: str = field(repr=False)
    by_token: bool = False
    extensions: tuple[tuple[str, str], ...] = ()
    """What a bearer token's login says besides the token."""


class Exchange(Protocol):
    """The messages of one login, in both directions."""

    def say(self) -> bytes:
        """Return the next message to the broker."""
        ...

    def hear(self, answer: bytes) -> bool:
        """Return whether this was the last answer. Raises AccessDenied if it refuses, or does not prove the secret."""
        ...


def own_mechanism(kafka: Mapping[str, str]) -> str | None:
    """Return the mechanism in librdkafka's properties; None without SASL. Raises InvalidRequest for unknown ones."""
    if not speaks_sasl(kafka):
        return None
    name = (kafka.get("sasl.mechanism") or kafka.get("sasl.mechanisms") or "").upper()
    if name not in MECHANISMS:
        raise InvalidRequest("raw reads know SASL PLAIN, SCRAM and OAUTHBEARER only", mechanism=name or "none set")
    return name


def speaks_sasl(kafka: Mapping[str, str]) -> bool:
    return "sasl" in kafka.get("security.protocol", "").lower()


def exchange_of(login: Login) -> Exchange:
    """Return a new exchange. Raises InvalidRequest for a name or a secret that this mechanism cannot carry."""
    if "\0" in login.user or "\0" in login.secret:
        raise InvalidRequest("a user's name or password has a character that SASL cannot carry")
    if login.mechanism == OAUTHBEARER:
        if not _BEARER.fullmatch(login.secret):
            raise InvalidRequest("a bearer token has a character that SASL cannot carry")
        more = "".join(f"{name}={value}\1" for name, value in login.extensions)
        return _Once(f"n,,\1auth=Bearer {login.secret}\1{more}\1".encode())
    if login.mechanism == PLAIN:
        return _Once(f"\0{login.user}\0{login.secret}".encode())
    return _Scram(login)


class _Once:
    """An exchange of one message. If the broker's answer is not empty, it is the reason of a refusal."""

    def __init__(self, message: bytes) -> None:
        self._message = message

    def say(self) -> bytes:
        return self._message

    def hear(self, answer: bytes) -> bool:
        if answer:
            raise AccessDenied("the broker refuses these credentials")
        return True


class _Scram:
    """SCRAM by kafka-python's client. It neither quotes names nor knows tokens, so the first message is built here."""

    def __init__(self, login: Login) -> None:
        self._client: Any = ScramClient(login.user, login.secret, login.mechanism)
        self._extensions = b",tokenauth=true" if login.by_token else b""
        self._heard = 0

    def say(self) -> bytes:
        client = self._client
        if self._heard:
            last: bytes = client.final_message()
            return last
        name = client.user.replace(b"=", b"=3D").replace(b",", b"=2C")
        bare: bytes = b"n=" + name + b",r=" + client.nonce + self._extensions
        client.auth_message += bare
        return b"n,," + bare

    def hear(self, answer: bytes) -> bool:
        self._heard += 1
        client = self._client
        process = client.process_server_first_message if self._heard == 1 else client.process_server_final_message
        try:
            process(answer)
        except (ValueError, KeyError, KafkaError) as error:
            raise AccessDenied("the broker did not prove that it knows the password") from error
        return self._heard == 2
