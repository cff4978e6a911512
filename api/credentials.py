"""Credentials of callers: bearer tokens from a file, an identity provider or for Kafka; passwords; certificates.

The gateway does not check Kafka's passwords and tokens. The brokers check them with the first request (`rights.py`).
Caches hold no credentials, only digests that are keyed by a random number of this process.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
from jwt import PyJWKClient, PyJWKSet
from jwt.exceptions import PyJWKClientConnectionError, PyJWKClientError, PyJWTError

from ..broker.sasl import OAUTHBEARER, Login
from ..runtime.clock import Clock
from ..runtime.gateway_settings import GatewayJwt
from ..runtime.id_source import keyed_digest
from ..runtime.live_secret import changed_text, changes_of
from ..state.errors import InvalidSettings, Unavailable
from .problems import NotAuthenticated

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Only algorithms with a public key: tokens signed with the public key's text (HS256), or unsigned, must be refused."""
LEEWAY_S = 30
KEYS_TIMEOUT_S = 5
KEYS_KEPT_S = 300.0
"""Seconds that a provider's keys are cached. A key that the provider removed may be accepted for so long."""
KEYS_AGAIN_S = 30.0
"""Seconds after a request for keys in which an unknown key causes no other request."""
LONGEST_NAME = 1000
"""The most characters of a user's name, and of a password."""
_DIGEST = re.compile("sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Caller:
    """``login``: the caller's login at the brokers; None: tierstate logs in as ``principal`` with a delegation token.

    ``key``: digest of the credentials, or of the name without a login. Callers with the same key have the same rights.
    ``until_ms``: the time when the credentials expire, in milliseconds since the epoch.
    """

    principal: str
    key: bytes = field(repr=False)
    login: Login | None = None
    until_ms: float = float("inf")


ANYBODY = Caller("", b"")
"""The caller if authentication is off or not needed."""


def named(principal: str) -> Caller:
    """Return the caller for a user who was authenticated without a secret of Kafka's."""
    return Caller(principal, keyed_digest("user", principal))


def basic(mechanism: str, credentials: str) -> Caller:
    """Return the caller of a header's base64 (RFC 7617). Raises NotAuthenticated if it is not valid."""
    try:
        user, colon, password = base64.b64decode(credentials, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise NotAuthenticated("the Authorization header is not HTTP Basic") from None
    if not colon or not user or max(len(user), len(password)) > LONGEST_NAME or not (user + password).isprintable():
        raise NotAuthenticated("the Authorization header has no name and password in it")
    return Caller(user, keyed_digest(mechanism, user, password), Login(mechanism, user, password))


def relayed(token: str, principal: str) -> Caller:
    """Return the caller of an unchecked token for Kafka. ``principal``: the name's claim. Raises NotAuthenticated."""
    try:
        claims = jwt.decode(token, options={"verify_signature": False})  # the brokers verify it
    except PyJWTError as error:
        raise NotAuthenticated("the bearer token is no JSON web token") from error
    ends = claims.get("exp")
    until = ends * 1000 if isinstance(ends, int | float) else float("inf")
    return Caller(_user_of(claims, principal), keyed_digest(OAUTHBEARER, token), Login(OAUTHBEARER, "", token), until)


def _user_of(claims: dict[str, Any], principal: str) -> str:
    user = claims.get(principal)
    if not isinstance(user, str) or not user or not user.isprintable():
        raise NotAuthenticated("the token names no user", parameter=principal)
    return user


class TokenFile:
    """A file of lines ``sha256:DIGEST user [expiry]``, without the tokens themselves. It is re-read if it changes."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """Raises InvalidSettings if the file cannot be used."""
        self._path, self._clock = path, clock
        self._seen: tuple[int, ...] = ()
        self._tokens: dict[bytes, tuple[str, float]] = {}
        self._refresh()

    def caller(self, token: str) -> Caller | None:
        """Return the caller, or None if the token is not in the file or expired. Raises Unavailable for a bad file."""
        try:
            self._refresh()
        except InvalidSettings as error:
            raise Unavailable("the gateway's file of tokens cannot be used") from error
        # looked up by digest, so that the duration reveals nothing about a token
        entry = self._tokens.get(hashlib.sha256(token.encode()).digest())
        return named(entry[0]) if entry is not None and self._clock.now_ms() < entry[1] else None

    def _refresh(self) -> None:
        try:
            changed = changed_text(self._path, self._seen, "gateway.auth.tokens")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidSettings([f"gateway.auth.tokens: cannot be read, {type(error).__name__}"]) from error
        if changed is not None:
            text, seen = changed
            self._tokens = _tokens_of(text, self._path)
            self._seen = seen


def _tokens_of(text: str, path: Path) -> dict[bytes, tuple[str, float]]:
    tokens: dict[bytes, tuple[str, float]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        digest = _DIGEST.fullmatch(parts[0])
        expiry = _milliseconds(parts[2]) if len(parts) == 3 else float("inf")
        if digest is None or len(parts) not in (2, 3) or expiry is None:
            raise InvalidSettings(
                [f"gateway.auth.tokens: line {number} of {path} is not `sha256:DIGEST user [expiry]`"]
            )
        tokens[bytes.fromhex(digest[1])] = parts[1], expiry
    if not tokens:
        raise InvalidSettings([f"gateway.auth.tokens: no token in {path}"])
    return tokens


def _milliseconds(text: str) -> float | None:
    """Return the milliseconds since the epoch of an ISO date or time (UTC by default), or None for other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000


class ProviderTokens:
    """JSON web tokens (RFC 7519) of one issuer for one audience. Thread-safe; `caller` may request keys and block."""

    def __init__(self, settings: GatewayJwt, again_s: float = KEYS_AGAIN_S) -> None:
        """``again_s``: as `KEYS_AGAIN_S`, for keys by URL. Raises InvalidSettings if a setting that an issuer needs is
        missing, or if the file of keys cannot be used.
        """
        self._settings = settings
        problems = [
            f"gateway.auth.jwt.{name}: needed beside issuer"
            for name in ("audience", "keys")
            if not getattr(settings, name)
        ]
        if problems:
            raise InvalidSettings(problems)
        self._keys: Callable[[str], Any]
        if settings.keys.startswith(("https://", "http://")):
            self._keys = _KeysByUrl(settings.keys, again_s)
        else:
            self._keys = _KeysOfFile(Path(settings.keys))

    def caller(self, token: str) -> Caller:
        """Return the caller. Raises NotAuthenticated for a token that is not valid here, Unavailable without keys."""
        settings = self._settings
        try:
            claims = jwt.decode(
                token,
                self._keys(token),
                algorithms=list(ALGORITHMS),
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud", settings.principal]},
            )
        except PyJWKClientConnectionError as error:
            raise Unavailable("the identity provider's keys cannot be read") from error
        except (PyJWTError, PyJWKClientError, ValueError) as error:
            raise NotAuthenticated(f"the token is refused: {error}") from error
        return named(_user_of(claims, settings.principal))


class _KeysByUrl:
    """A provider's keys, cached for `KEYS_KEPT_S`. Unknown keys cause at most one request per ``again_s`` seconds."""

    def __init__(self, url: str, again_s: float) -> None:
        self._client = PyJWKClient(
            url, timeout=KEYS_TIMEOUT_S, lifespan=KEYS_KEPT_S, cooldown_duration=again_s, cache_keys=False
        )
        self._lock = threading.Lock()

    def __call__(self, token: str) -> Any:
        with self._lock:  # one request to the provider at a time
            return self._client.get_signing_key_from_jwt(token).key


class _KeysOfFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] = (0, 0, 0)
        self._keys: dict[str | None, Any] = {}
        try:
            self._refresh()
        except (OSError, ValueError, PyJWTError) as error:
            raise InvalidSettings([f"gateway.auth.jwt.keys: {path} is no set of keys, {error}"]) from error

    def __call__(self, token: str) -> Any:
        try:
            self._refresh()
        except (OSError, ValueError, PyJWTError) as error:
            raise Unavailable("the gateway's file of keys cannot be used") from error
        name = jwt.get_unverified_header(token).get("kid")
        if name not in self._keys:
            raise NotAuthenticated("the token is refused: its key is not known")
        return self._keys[name]

    def _refresh(self) -> None:
        seen = changes_of(self._path.stat())
        if seen != self._seen:
            key_set = PyJWKSet.from_json(self._path.read_text("utf-8"))
            self._keys = {each.key_id: each.key for each in key_set.keys}
            self._seen = seen


def subject_of(certificate: dict[str, Any], form: str) -> str:
    """Return a certificate's common name (``form`` cn), else its subject in Kafka's form. Raises NotAuthenticated."""
    names = [pair for each in certificate.get("subject", ()) for pair in each]
    if form == "cn":
        common_names = [value for name, value in names if name == "commonName"]
        if len(common_names) != 1:
            raise NotAuthenticated("the certificate has no common name, or several")
        return str(common_names[0])
    if not names:
        raise NotAuthenticated("the certificate has no subject")
    return ",".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in reversed(names))


_SHORT = {"commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU", "countryName": "C"}
_SHORT |= {"localityName": "L", "stateOrProvinceName": "ST", "streetAddress": "STREET", "domainComponent": "DC"}


def _escaped(value: str) -> str:
    text = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    return f"\\{text}" if text.startswith(("#", " ")) else text
