"""The logins of a connection at a broker: by PLAIN, OAUTHBEARER, and SCRAM, also with a delegation token.

PLAIN: RFC 4616. OAUTHBEARER: RFC 7628; tierstate's own tokens are from `oauth.py`. SCRAM: RFC 5802; a login by a
delegation token has the extension ``tokenauth=true`` (KIP-48), the token's id as its user and its HMAC in base64 as its
password.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

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


def exchange_of(login: Login) -> Generator[bytes, bytes, None]:
    """Yield each message of a login to the broker, and get its answer. The login is over when the generator ends.

    Raises InvalidRequest for a name or a secret that this mechanism cannot carry, and AccessDenied for an answer that
    refuses, or does not prove the secret.
    """
    if "\0" in login.user or "\0" in login.secret:
        raise InvalidRequest("a user's name or password has a character that SASL cannot carry")
    if login.mechanism == OAUTHBEARER:
        if not _BEARER.fullmatch(login.secret):
            raise InvalidRequest("a bearer token has a character that SASL cannot carry")
        more = "".join(f"{name}={value}\1" for name, value in login.extensions)
        message = f"n,,\1auth=Bearer {login.secret}\1{more}\1".encode()
    elif login.mechanism == PLAIN:
        message = f"\0{login.user}\0{login.secret}".encode()
    else:
        yield from _scram(login)
        return
    if (yield message):  # the reason of a refusal
        raise AccessDenied("the broker refuses these credentials")


def _scram(login: Login) -> Generator[bytes, bytes, None]:
    """SCRAM by kafka-python's client. It neither quotes names nor knows tokens, so the first message is built here."""
    client: Any = ScramClient(login.user, login.secret, login.mechanism)
    name = client.user.replace(b"=", b"=3D").replace(b",", b"=2C")
    bare: bytes = b"n=" + name + b",r=" + client.nonce + (b",tokenauth=true" if login.by_token else b"")
    client.auth_message += bare
    try:
        client.process_server_first_message((yield b"n,," + bare))
        client.process_server_final_message((yield client.final_message()))
    except (ValueError, KeyError, KafkaError) as error:
        raise AccessDenied("the broker did not prove that it knows the password") from error
