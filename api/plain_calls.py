"""Reads of records that are asked for plainly, past the framework's routes and parameters: those take longer than most
reads.

Taken are calls whose every parameter is one of `PLAIN`, in its plainest form, and no header is there twice. Whatever
else is there, also what is wrong, goes the long way, which alone says so. Who asks the same is not parsed again.
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
from .media import negotiate
from .problems import NotAcceptable, answer_to
from .records import DEFAULT_BYTES, respond
from .service import FetchService

REMEMBERED = 4096
"""Calls; the one unused longest is parsed again."""
LONGEST = 1000
"""Characters of a plain one, with its headers: what is remembered is bounded."""
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


@lru_cache(REMEMBERED)
def plain_call(path: str, query: bytes, accept: bytes, coding: bytes, most_bytes: int) -> Call | None:
    """``accept``, ``coding``: headers. ``most_bytes``: of any call. None: it is not plain."""
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    try:
        given, media_type = _parameters(query), negotiate(accept.decode("latin-1"))
    except (KeyError, ValueError, NotAcceptable):
        return None
    given["max_bytes"] = min(given.get("max_bytes", DEFAULT_BYTES), most_bytes)
    return Call(found[1], int(found[2]), media_type, coding_of(coding.decode("latin-1"), media_type), **given)


def plainly(service: FetchService) -> Callable[[ASGIApp], ASGIApp]:
    """ASGI middleware, behind the door."""
    most_bytes = service.settings.max_bytes

    def before(app: ASGIApp) -> ASGIApp:
        async def entered(scope: Scope, receive: Receive, send: Send) -> None:
            call = None
            if scope["type"] == "http" and scope["method"] == "GET" and scope["path"].endswith("/records"):
                headers = dict(scope["headers"])
                accept, coding = headers.get(b"accept", b""), headers.get(b"accept-encoding", b"")
                asked = scope["path"], scope["query_string"], accept, coding
                if len(headers) == len(scope["headers"]) and sum(map(len, asked)) <= LONGEST:
                    call = plain_call(*asked, most_bytes)
            if call is None:
                await app(scope, receive, send)
                return
            request = Request(scope, receive, send)
            try:
                response = await respond(request, service, call)
            except TierstateError as error:
                response = answer_to(request, error)
            except Exception as error:  # a bug; the server logs it
                await answer_to(request, error)(scope, receive, send)
                raise
            await response(scope, receive, send)

        return entered

    return before


def _parameters(query: bytes) -> dict[str, Any]:
    """KeyError, ValueError: not all of them are plain."""
    given: dict[str, Any] = {}
    for each in query.decode("ascii").split("&"):
        name, _, text = each.partition("=")
        field, parse = PLAIN[name]
        if field in given:
            raise ValueError(name)
        given[field] = parse(text)
    return given
