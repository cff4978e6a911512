"""How callers prove who they are: bearer tokens of a file, of an identity provider, of Kafka's own, and passwords.

A password or a token of Kafka's proves nothing here: the brokers check it with the first question (`rights.py`).
What is kept of any of them is a digest keyed by a random number of this process.
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
from ..runtime.changed_file import changes_of
from ..runtime.clock import Clock
from ..runtime.gateway_settings import GatewayJwt
from ..runtime.keyed_digest import keyed_digest
from ..state.errors import InvalidSettings, Unavailable
from .problems import NotAuthenticated

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""With a public key only: a token signed with the key's own text (HS256) or not at all must not count."""
LEEWAY_S = 30
KEYS_TIMEOUT_S = 5
KEYS_KEPT_S = 300.0
"""How long a key counts that its provider has taken away, where nobody comes with a new one."""
KEYS_AGAIN_S = 30.0
"""How long a provider is not asked for keys that nobody knows."""
LONGEST_NAME = 1000
"""Characters of a user's name, or of a password."""
_DIGEST = re.compile("sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Caller:
    """``login``: what is shown to brokers for it; None: they are asked about ``principal`` by a delegation token.

    ``key``: digest of how it was proven. Two callers of one key have the same rights. ``until_ms``: when that ends,
    milliseconds since the epoch.
    """

    principal: str
    key: bytes = field(repr=False)
    login: Login | None = None
    until_ms: float = float("inf")


ANYBODY = Caller("", b"")
"""Nobody was asked."""


def named(principal: str) -> Caller:
    """Found out to be this user, not by a secret of Kafka's."""
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
    """Return the caller of a token for Kafka. ``principal``: the claim with the name. Raises NotAuthenticated."""
    try:
        claims = jwt.decode(token, options={"verify_signature": False})  # the brokers do
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
    """``sha256:DIGEST user [expiry]`` a line, read again when the file changes. Tokens themselves are not in it."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """InvalidSettings: it cannot be used."""
        self._path, self._clock = path, clock
        self._seen: tuple[int, ...] = ()
        self._tokens: dict[bytes, tuple[str, float]] = {}
        self._refresh()

    def caller(self, token: str) -> Caller | None:
        """Return the caller, or None for a token not in the file. Raises Unavailable if the file is unusable."""
        try:
            self._refresh()
        except InvalidSettings as error:
            raise Unavailable("the gateway's file of tokens cannot be used") from error
        # by digest: timing tells nothing about a token
        entry = self._tokens.get(hashlib.sha256(token.encode()).digest())
        return named(entry[0]) if entry is not None and self._clock.now_ms() < entry[1] else None

    def _refresh(self) -> None:
        try:
            now = self._path.stat()
            seen = (*changes_of(now), now.st_mode)
            if seen == self._seen:
                return
            if now.st_mode & 0o007:
                raise InvalidSettings([f"gateway.auth.tokens: others may read or write {self._path}: chmod o= it"])
            text = self._path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidSettings([f"gateway.auth.tokens: cannot be read, {type(error).__name__}"]) from error
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
    """Since the epoch, of an ISO date or time (UTC unless it says otherwise). None: it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000


class ProviderTokens:
    """JSON web tokens (RFC 7519) of one issuer for one audience. Thread-safe; `caller` may ask the provider."""

    def __init__(self, settings: GatewayJwt, again_s: float = KEYS_AGAIN_S) -> None:
        """``again_s``: of keys by URL. InvalidSettings: what belongs together is not there, or the file of keys cannot
        be used.
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
        """Return the caller. Raises NotAuthenticated (not a valid token for us), Unavailable (the keys are unknown)."""
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
    """Kept for `KEYS_KEPT_S`; asked again for a key that is not known, after ``again_s`` at the earliest."""

    def __init__(self, url: str, again_s: float) -> None:
        self._client = PyJWKClient(
            url, timeout=KEYS_TIMEOUT_S, lifespan=KEYS_KEPT_S, cooldown_duration=again_s, cache_keys=False
        )
        self._lock = threading.Lock()

    def __call__(self, token: str) -> Any:
        with self._lock:  # one question to the provider at a time
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
    """A certificate's common name, or its subject as Kafka writes it (RFC 2253). NotAuthenticated: it has none."""
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
