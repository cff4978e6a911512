"""Authentication of all calls under `/v1`. The console, its documentation and openapi.json hold no data and need none.

Host        must be in ``gateway.hosts``. If that is empty and ``gateway.auth`` is not set, it must be a local name, so
            that a web page whose own host name points to this machine (DNS rebinding) reads nothing
identity    comes from the Authorization header, or from the client's certificate if there is no such header
length      a call with two lengths may hide another call from a proxy, so its connection is closed
HEAD        is answered like GET, without a body; OPTIONS lists the allowed methods
caching     answers of /v1 have Cache-Control: no-store
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..runtime.clock import Clock
from ..runtime.gateway_settings import Gateway
from ..runtime.pool import Pool
from ..state.errors import InvalidRequest, InvalidSettings, TierstateError
from .access_log import ACCESS, AccessLog, LoggedCall
from .credentials import ANYBODY, Caller, ProviderTokens, TokenFile, basic, named, relayed, subject_of
from .media import header
from .problems import NotAuthenticated, TwoLengths, WrongHost, methods_of, problem_response

OUR_NAMES = ("localhost", "127.0.0.1", "[::1]")
CERTIFICATE = "tierstate.certificate"
CALLER = "tierstate.caller"
"""CERTIFICATE and CALLER are keys of an ASGI scope: the client's certificate in `ssl`'s form, and the `Caller`."""
HEAD = "tierstate.head"
"""Key of an ASGI scope: True for a HEAD call. The answer's body is not sent, so a route need not read data for it."""
_HEADERS = ((b"x-content-type-options", b"nosniff"),)
_TLS_HEADERS = (*_HEADERS, (b"strict-transport-security", b"max-age=31536000"))
"""Headers that every answer gets: `_HEADERS` over HTTP, `_TLS_HEADERS` over HTTPS."""
_NO_STORE = (b"cache-control", b"no-store")


class Door:
    """Checks the host and the credentials of each call. ``pool``: runs requests to an identity provider."""

    def __init__(self, settings: Gateway, clock: Clock, mechanism: str, pool: Pool, log: AccessLog) -> None:
        """``mechanism``: SASL mechanism for callers' passwords. Raises InvalidSettings: see `check`, and bad files."""
        check(settings)
        auth, self._log = settings.auth, log
        self._pool, self._mechanism = pool, mechanism
        self._asks, self._basic, self._certificates = auth.asks, auth.basic, auth.certificates
        self._file = TokenFile(auth.tokens, clock) if auth.tokens is not None else None
        self._provider = ProviderTokens(auth.jwt) if auth.jwt.issuer else None
        self._relays, self._claim = auth.oauthbearer, auth.jwt.principal
        self._bearer = self._file is not None or self._provider is not None or self._relays
        hosts = settings.hosts or (() if auth.asks or auth.anonymous else (*OUR_NAMES, settings.listen.host))
        self._hosts = frozenset(host.lower() for host in hosts)

    def before(self, app: ASGIApp) -> ASGIApp:
        async def entered(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            path, headers = scope["path"], _TLS_HEADERS if scope["scheme"] == "https" else _HEADERS
            access = self._log.begun(scope) if path == "/v1" or path.startswith("/v1/") else None

            async def sent(message: Message) -> None:
                if message["type"] == "http.response.start":
                    made = [*message["headers"], *headers]
                    if access is not None and not any(name == _NO_STORE[0] for name, _ in made):
                        made.append(_NO_STORE)
                    message["headers"] = made
                await send(message)
                if access is not None:
                    access.sent(message)

            try:
                await self._enter(app, scope, receive, sent, access)
            finally:
                if access is not None:
                    access.over()

        return entered

    async def _enter(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, access: LoggedCall | None) -> None:
        """Check a call, then pass it to ``app``. ``access`` None: the path is outside /v1, so anybody may call it."""
        caller = ANYBODY
        try:
            if header(scope, b"content-length") and header(scope, b"transfer-encoding"):
                raise TwoLengths("Content-Length and Transfer-Encoding say two lengths of one body")
            if self._hosts:
                host = header(scope, b"host").lower()
                name, _, port = host.rpartition(":")
                if (name if port.isdigit() else host) not in self._hosts:
                    raise WrongHost("the gateway is not called by this name: gateway.hosts", given=host)
            if access is not None:
                caller = await self._caller(scope)
                access.user = caller.principal
        except TierstateError as error:
            response = problem_response(error)
            if isinstance(error, TwoLengths):
                response.headers["connection"] = "close"
            if isinstance(error, NotAuthenticated):
                challenges = ['Basic realm="tierstate", charset="UTF-8"'] * self._basic + ["Bearer"] * self._bearer
                for challenge in challenges:
                    response.headers.append("www-authenticate", challenge)
            await response(scope, receive, send)
            return
        if scope["method"] == "OPTIONS":
            await Response(status_code=204, headers={"allow": methods_of(scope["path"])})(scope, receive, send)
            return
        # the server leaves out the body of an answer to HEAD
        head = scope["method"] == "HEAD"
        method = "GET" if head else scope["method"]
        await app({**scope, ACCESS: access, CALLER: caller, HEAD: head, "method": method}, receive, send)

    async def _caller(self, scope: Scope) -> Caller:
        if not self._asks:
            return ANYBODY
        headers = [value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"]
        if len(headers) > 1:
            raise InvalidRequest("more than one Authorization header")
        if not headers:
            return self._by_certificate(scope.get(CERTIFICATE))
        kind, _, word = headers[0].partition(" ")
        word = word.strip()
        if kind.lower() == "basic" and self._basic:
            return basic(self._mechanism, word)
        if kind.lower() == "bearer" and word and self._bearer:
            caller = self._file.caller(word) if self._file is not None else None
            if caller is not None:
                return caller
            if (provider := self._provider) is not None:
                return await self._pool.run(lambda: provider.caller(word))
            if self._relays:
                return relayed(word, self._claim)
            raise NotAuthenticated("the bearer token is not known, or not any more")
        raise NotAuthenticated(f"the gateway takes {self._ways()}")

    def _by_certificate(self, certificate: dict[str, Any] | None) -> Caller:
        if self._certificates is None or not certificate:
            raise NotAuthenticated(f"the gateway takes {self._ways()}")
        return named(subject_of(certificate, self._certificates))

    def _ways(self) -> str:
        ways = ["a bearer token"] * self._bearer + ["a Kafka user's name and password by HTTP Basic"] * self._basic
        return " or ".join([*ways, *["a client certificate"] * (self._certificates is not None)])


def check(settings: Gateway) -> None:
    """Raises InvalidSettings if anybody could read, or secrets would come unencrypted, and no setting allows that.

    Also raises it if settings of authentication exclude each other, or one needs another that is missing.
    """
    auth, problems = settings.auth, []
    if not auth.asks and not auth.anonymous and not settings.of_this_machine:
        problems.append(
            f"gateway.listen: other machines can reach {settings.listen} without a login: set gateway.auth, "
            "or gateway.auth.anonymous = true"
        )
    if auth.by_login and settings.tls.certificate is None and not settings.of_this_machine and not auth.behind_tls:
        problems.append(
            f"gateway.auth.{'basic' if auth.basic else 'oauthbearer'}: what Kafka takes would come in the clear: set "
            "gateway.tls, or gateway.auth.behind_tls = true"
        )
    if auth.oauthbearer and auth.jwt.issuer:
        problems.append(
            "gateway.auth.oauthbearer: the brokers check tokens, or the gateway by auth.jwt.issuer, not both"
        )
    if auth.certificates is not None and settings.tls.client_ca is None:
        problems.append("gateway.auth.certificates: needs gateway.tls.client_ca")
    if problems:
        raise InvalidSettings(problems)
