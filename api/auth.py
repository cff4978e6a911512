"""Who may read: bearer tokens from a file, one ``token principal`` a line. Everything under `/v1` needs one.

The console, the documentation and openapi.json hold no data and need none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ..runtime.settings import GatewayAuth
from ..state.errors import InvalidSettings
from .problems import NotAuthenticated, problem_response


def read_tokens(settings: GatewayAuth) -> Mapping[bytes, str] | None:
    """SHA-256 of each token to its principal; None when nobody is asked.

    Raises InvalidSettings for a file that cannot be used.
    """
    if settings.tokens is None:
        return None
    try:
        text = settings.tokens.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings([f"gateway.auth.tokens: cannot be read, {type(error).__name__}"]) from error
    return _parse(text, settings.tokens)


def _parse(text: str, path: Path) -> dict[bytes, str]:
    tokens: dict[bytes, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        if len(parts) != 2:
            raise InvalidSettings([f"gateway.auth.tokens: line {number} of {path} is not `token principal`"])
        tokens[_digest(parts[0])] = parts[1]
    if not tokens:
        raise InvalidSettings([f"gateway.auth.tokens: no token in {path}"])
    return tokens


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class BearerTokens:
    """The door in front of `/v1`. Tokens are compared by digest, so timing tells nothing about them."""

    def __init__(self, app: ASGIApp, tokens: Mapping[bytes, str]) -> None:
        self._app, self._tokens = app, tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or not (path == "/v1" or path.startswith("/v1/")):
            await self._app(scope, receive, send)
            return
        kind, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
        principal = self._tokens.get(_digest(token.strip())) if kind.lower() == "bearer" else None
        if principal is None:
            await problem_response(NotAuthenticated("a bearer token is needed"))(scope, receive, send)
            return
        await self._app({**scope, "tierstate.principal": principal}, receive, send)
