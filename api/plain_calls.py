"""Reads of records that are asked for plainly, past the framework's routes and parameters: those take longer than most
reads.

Taken are calls whose every parameter is one of `PLAIN`, in its plainest form. Whatever else is there, also what
is wrong, goes the long way, which alone says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from ..log.json_lines import Encoding
from ..state.errors import TierstateError
from ..state.routing import Isolation, Tier
from .problems import answer_to
from .records import read_records
from .service import FetchService

_PATH = re.compile(r"/v1/topics/([a-zA-Z0-9._-]{1,249})/partitions/(0|[1-9][0-9]{0,8})/records")
_NUMBER = re.compile("0|[1-9][0-9]{0,17}")


def _number(text: str, least: int = 0) -> int:
    """ValueError: not written as every client writes it, or less than the least."""
    if not _NUMBER.fullmatch(text) or int(text) < least:
        raise ValueError(text)
    return int(text)


def _positive(text: str) -> int:
    return _number(text, 1)


PLAIN: Mapping[str, Callable[[str], Any]] = {
    "offset": _number,
    "max_bytes": _positive,
    "max_records": _positive,
    "isolation_level": Isolation,
    "tier": Tier,
    "encoding": Encoding,
}
"""Parameters of `records.read_records`."""


def plainly(service: FetchService) -> Callable[[ASGIApp], ASGIApp]:
    """ASGI middleware, behind the door."""

    def before(app: ASGIApp) -> ASGIApp:
        async def entered(scope: Scope, receive: Receive, send: Send) -> None:
            found = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "GET" else None
            given = None if found is None else _parameters(scope["query_string"])
            if found is None or given is None:
                await app(scope, receive, send)
                return
            request = Request(scope, receive, send)
            try:
                response = await read_records(request, service, found[1], int(found[2]), **given)
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
            name, _, value = each.partition("=")
            given[name] = PLAIN[name](value)  # of two the last counts, as by the long way
    except (KeyError, ValueError):
        return None
    return given
