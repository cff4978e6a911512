"""Reads of records that are asked for plainly, past the framework's routes and parameters: those take longer than most
reads.

Taken are calls whose every parameter is one of `PLAIN`, in its plainest form. Whatever else is there, also what
is wrong, goes the long way, which alone says so. What a call is, is worked out once for all who ask the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from ..log.json_lines import Encoding
from ..state.errors import TierstateError
from ..state.routing import Isolation, Tier
from .answer_body import Call
from .content_coding import coding_of
from .media import header, negotiate
from .problems import answer_to
from .records import DEFAULT_BYTES, respond
from .service import FetchService

REMEMBERED = 4096
"""Calls, the one unused longest is worked out again."""
LONGEST = 1000
"""Characters of one that is remembered: path, query and headers."""
_PATH = re.compile(r"/v1/topics/([a-zA-Z0-9._-]{1,249})/partitions/(0|[1-9][0-9]{0,8})/records")
_NUMBER = re.compile("0|[1-9][0-9]{0,17}")


def _number(text: str, least: int = 0) -> int:
    """ValueError: not written as every client writes it, or less than the least."""
    if not _NUMBER.fullmatch(text) or int(text) < least:
        raise ValueError(text)
    return int(text)


def _positive(text: str) -> int:
    return _number(text, 1)


PLAIN: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "offset": ("offset", _number),
    "max_bytes": ("max_bytes", _positive),
    "max_records": ("max_records", _positive),
    "isolation_level": ("isolation", Isolation),
    "tier": ("tier", Tier),
    "encoding": ("encoding", Encoding),
}
"""Parameters of `records.read_records`, and what they are of a `Call`."""


def plainly(service: FetchService) -> Callable[[ASGIApp], ASGIApp]:
    """ASGI middleware, behind the door."""

    @lru_cache(REMEMBERED)
    def call_of(path: str, query: bytes, accept: str, coding: str) -> Call | None:
        found, given = _PATH.fullmatch(path), _parameters(query)
        if found is None or given is None:
            return None
        given["max_bytes"] = min(given.get("max_bytes", DEFAULT_BYTES), service.settings.max_bytes)
        media_type = negotiate(accept)
        return Call(found[1], int(found[2]), media_type, coding_of(coding, media_type), **given)

    def before(app: ASGIApp) -> ASGIApp:
        async def entered(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["method"] != "GET" or not scope["path"].endswith("/records"):
                await app(scope, receive, send)
                return
            asked = scope["path"], scope["query_string"], header(scope, b"accept"), header(scope, b"accept-encoding")
            request = Request(scope, receive, send)
            try:
                call = call_of(*asked) if sum(map(len, asked)) <= LONGEST else None
                if call is None:
                    await app(scope, receive, send)
                    return
                response = await respond(request, service, call)
            except TierstateError as error:
                response = answer_to(request, error)
            await response(scope, receive, send)

        return entered

    return before


def _parameters(query: bytes) -> dict[str, Any] | None:
    """None: not all of them are plain."""
    given: dict[str, Any] = {}
    try:
        for each in query.decode("ascii").split("&"):
            name, _, text = each.partition("=")
            field, parse = PLAIN[name]
            given[field] = parse(text)  # of two the last counts, as by the long way
    except (KeyError, ValueError):
        return None
    return given
