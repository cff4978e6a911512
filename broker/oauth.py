"""Bearer tokens of tierstate's own logins (SASL/OAUTHBEARER): one source for librdkafka and for raw connections.

sasl.oauthbearer.method   the token
oidc (the default)        from ``sasl.oauthbearer.token.endpoint.url`` by client credentials (RFC 6749, 4.4), or, as in
                          Kafka's Java client, from the file that a ``file://`` URL names and another program renews
aws_msk_iam               AWS' library signs it with the AWS credentials of this process, for IAM of Amazon MSK
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

from ..runtime.clock import Clock, SystemClock
from ..state.errors import AccessDenied, BrokerUnavailable, InvalidRequest, MissingExtra, TierstateError

PREFIX = "sasl.oauthbearer."
METHOD, ENDPOINT, REGION = f"{PREFIX}method", f"{PREFIX}token.endpoint.url", f"{PREFIX}aws.region"
CLIENT_ID, CLIENT_SECRET = f"{PREFIX}client.id", f"{PREFIX}client.secret"
SCOPE, EXTENSIONS = f"{PREFIX}scope", f"{PREFIX}extensions"
NEWER_NAMES = {f"{PREFIX}client.credentials.{name}": f"{PREFIX}{name}" for name in ("client.id", "client.secret")}
UNDERSTOOD = {METHOD, ENDPOINT, REGION, CLIENT_ID, CLIENT_SECRET, SCOPE, EXTENSIONS}
MSK = "aws_msk_iam"
ANSWER_S = 10.0
AGAIN_S = 1.0
"""Seconds without another request after a failed one, and after a new token."""
RENEWED_AT = 0.75
"""The part of its lifetime after which a token is renewed. librdkafka asks for the next token at 0.8."""
UNKNOWN_LIFETIME_S = 300.0
"""The lifetime of a token that does not state it. The broker checks the real one."""
_EXTENSION = re.compile(r"([A-Za-z]+)=([\x21-\x7e]+)")
_MSK_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")


@dataclass(frozen=True, slots=True)
class Token:
    """``expires_at``, ``renew_at``: seconds since the epoch. ``origin``: where the token is from, for errors."""

    value: str = field(repr=False)
    expires_at: float
    origin: str
    renew_at: float = 0.0
    """The token is asked for at each login if this is 0."""
    extensions: Mapping[str, str] = field(default_factory=dict)


class TokenSource:
    """Keeps a token, and asks for the next one before it expires: one request at a time. Thread-safe."""

    def __init__(self, ask: Callable[[], Token], clock: Clock | None = None) -> None:
        self._ask, self._clock = ask, clock or SystemClock()
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._renew_at = self._quiet_until = float("-inf")
        self._failure: TierstateError | None = None
        self._refused = False
        self.replaced = 0
        """How often a refused token was replaced. librdkafka would use that token until it expires."""

    def now(self) -> Token:
        """Return a valid token. A failed renewal is an error only once the token before has expired.

        Raises AccessDenied, BrokerUnavailable, InvalidRequest and MissingExtra.
        """
        with self._lock:
            now = self._clock.now_ms() / 1000
            valid = self._token is not None and now < self._token.expires_at
            if (not valid or now >= self._renew_at) and self._clock.monotonic() >= self._quiet_until:
                valid = self._renew(now) or valid
            if self._token is not None and valid:
                return self._token
            raise self._failure or AccessDenied("the token for Kafka has expired")

    def refused(self) -> None:
        """Ask for another token at the next login, because a broker refused this one."""
        with self._lock:
            self._refused, self._renew_at = True, float("-inf")

    def for_librdkafka(self, config: str | None) -> tuple[str, float, str, dict[str, str]]:
        """Return the token as librdkafka's ``oauth_cb`` does."""
        token = self.now()
        return token.value, token.expires_at, "", dict(token.extensions)

    def _renew(self, now: float) -> bool:
        """Return whether there is a new token."""
        try:
            token = self._ask()
            if token.expires_at <= now:
                raise AccessDenied("the token for Kafka has expired", origin=token.origin)
        except TierstateError as error:
            self._failure = error
            self._quiet_until = self._clock.monotonic() + AGAIN_S
            return False
        if self._refused and self._token is not None and self._token.value != token.value:
            self._refused, self.replaced = False, self.replaced + 1
        self._token, self._renew_at, self._failure = token, token.renew_at, None
        if token.renew_at:
            self._quiet_until = self._clock.monotonic() + AGAIN_S
        return True


def token_source(kafka: Mapping[str, str], clock: Clock | None = None) -> TokenSource:
    """Return the source that these properties describe. They are read, and refused, when a token is asked for."""
    clock = clock or SystemClock()
    return TokenSource(lambda: _ask(kafka, clock.now_ms() / 1000), clock)


def user_of(kafka: Mapping[str, str]) -> str:
    """Return who logs in, for people: the client's id, the token's file, or the method."""
    kafka = _as_understood(kafka)
    return kafka.get(CLIENT_ID) or kafka.get(ENDPOINT) or kafka.get(METHOD, "")


def _as_understood(kafka: Mapping[str, str]) -> dict[str, str]:
    return {NEWER_NAMES.get(name, name): value for name, value in kafka.items()}


def _ask(kafka: Mapping[str, str], now: float) -> Token:
    kafka = _as_understood(kafka)
    if unknown := [name for name in kafka if name.startswith(PREFIX) and name not in UNDERSTOOD]:
        raise InvalidRequest("this property of OAUTHBEARER is not supported", property=", ".join(unknown))
    method, endpoint = kafka.get(METHOD, "oidc").lower(), kafka.get(ENDPOINT, "")
    if method == MSK:
        value, expires_at, origin = _signed_for_msk(kafka)
    elif method != "oidc" or not endpoint:
        raise InvalidRequest(f"OAUTHBEARER needs {METHOD}={MSK}, or oidc with {ENDPOINT}", method=method)
    elif urlsplit(endpoint).scheme == "file":
        value, origin = _from_file(endpoint), endpoint
        expires_at = _expiry_of(value) or now + UNKNOWN_LIFETIME_S
    else:
        value, seconds, origin = *_from_endpoint(kafka, endpoint), endpoint
        expires_at = _expiry_of(value) or now + seconds
    renew_at = 0.0 if origin.startswith("file:") else now + RENEWED_AT * (expires_at - now)
    return Token(value, expires_at, origin, renew_at, _extensions(kafka.get(EXTENSIONS, "")))


def _from_file(endpoint: str) -> str:
    try:
        token = Path(unquote(urlsplit(endpoint).path)).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise BrokerUnavailable("the token's file cannot be read", endpoint=endpoint, reason=error) from error
    if not token:
        raise BrokerUnavailable("the token's file is empty", endpoint=endpoint)
    return token


def _from_endpoint(kafka: Mapping[str, str], endpoint: str) -> tuple[str, float]:
    """Return a new token, and the lifetime in seconds that the endpoint states."""
    import urllib3

    client, secret = kafka.get(CLIENT_ID, ""), kafka.get(CLIENT_SECRET, "")
    if not client or not secret:
        raise InvalidRequest(f"{CLIENT_ID} and {CLIENT_SECRET} must be set", endpoint=endpoint)
    form = {"grant_type": "client_credentials"} | ({"scope": kafka[SCOPE]} if kafka.get(SCOPE) else {})
    login = base64.b64encode(f"{client}:{secret}".encode()).decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/x-www-form-urlencoded"}
    authorities = kafka.get("https.ca.location", "probe")
    try:
        with urllib3.PoolManager(ca_certs=None if authorities == "probe" else authorities) as pool:
            answer = pool.request(
                "POST", endpoint, body=urlencode(form), headers=headers, timeout=ANSWER_S, retries=False
            )
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        raise BrokerUnavailable("the token endpoint does not answer", endpoint=endpoint, reason=error) from error
    try:
        said = json.loads(answer.data)
        if answer.status == 200:
            return str(said["access_token"]), float(said.get("expires_in", UNKNOWN_LIFETIME_S))
        words = [str(said[name]) for name in ("error", "error_description") if name in said]
    except (ValueError, TypeError, KeyError):
        words = ["no JSON with a token" if answer.status == 200 else ""]
    passing = answer.status >= 500 or answer.status in (408, 429)
    reason = " ".join([str(answer.status), *words]).strip()
    for hidden in (secret, login):
        reason = reason.replace(hidden, "(hidden)")
    kind = BrokerUnavailable if passing else AccessDenied
    raise kind("the token endpoint issues no token", endpoint=endpoint, client=client, answer=reason[:300])


def _signed_for_msk(kafka: Mapping[str, str]) -> tuple[str, float, str]:
    host = _MSK_HOST.search(kafka.get("bootstrap.servers", ""))
    region = kafka.get(REGION) or (host[1] if host else "")
    if not region:
        raise InvalidRequest(f"bootstrap.servers names no AWS region: set {REGION}")
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    except ModuleNotFoundError as error:
        raise MissingExtra("msk", f"{METHOD}={MSK}") from error
    try:
        value, expires_ms = MSKAuthTokenProvider.generate_auth_token(region)
    except Exception as error:  # botocore's errors; without any credentials, an AttributeError
        facts = {"region": region, "reason": f"{type(error).__name__} {error}"}
        raise AccessDenied("no AWS credentials can sign a token for Kafka", **facts) from error
    return value, expires_ms / 1000, f"{MSK} {region}"


def claims_of(token: str) -> dict[str, Any]:
    """Return a JWT's claims; empty for another token. Nothing is verified: that is the broker's task."""
    parts = token.split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))) if len(parts) == 3 else {}
    except ValueError:
        return {}
    return claims if isinstance(claims, dict) else {}


def _expiry_of(token: str) -> float | None:
    expiry = claims_of(token).get("exp")
    return float(expiry) if isinstance(expiry, int | float) else None


def _extensions(text: str) -> dict[str, str]:
    """Return the pairs of ``name=value,name=value``. Raises InvalidRequest."""
    pairs = [_EXTENSION.fullmatch(part.strip()) for part in text.split(",") if part.strip()]
    if None in pairs or any(pair and pair[1] == "auth" for pair in pairs):
        raise InvalidRequest(f"{EXTENSIONS} is not written as name=value,name=value")
    return {pair[1]: pair[2] for pair in pairs if pair}
