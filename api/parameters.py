"""Strict checks of parameters: a call with a parameter that could be read in two ways is refused."""

from __future__ import annotations

import difflib
import re
from typing import get_origin
from urllib.parse import unquote_to_bytes

from fastapi import Request
from pydantic import BeforeValidator

from ..app.opening.positions import parse_time
from ..runtime.clock import Clock
from ..state.errors import InvalidRequest
from ..state.offsets import TimestampMs

_WHOLE = re.compile("-?(0|[1-9][0-9]*)", re.ASCII)


def _written_plainly(value: object) -> object:
    if isinstance(value, str) and not _WHOLE.fullmatch(value):
        raise ValueError("a whole number is digits alone, as 0 or 42")
    return value


WHOLE = BeforeValidator(_written_plainly)
"""For numbers in a path or a query: pydantic alone also takes ``+0``, ``1_0``, ``1.0`` and blanks."""

LONGEST_TIME = 64
A_TIME = "ISO 8601 (2026-01-31T12:00:00Z), milliseconds since the epoch, or -3d."


def time_of(text: str, clock: Clock) -> TimestampMs:
    """Return the time in milliseconds since the epoch. Raises InvalidRequest if it is no time or before 1970."""
    timestamp = parse_time(text, clock.now_ms())
    if timestamp < 0:
        raise InvalidRequest("the time is before 1970", time=repr(text))
    return timestamp


async def check_parameters(request: Request) -> None:
    """Check the query of a call; a dependency of every route. Raises InvalidRequest if the query is not UTF-8, if the
    route does not have a parameter (the error suggests a similar name), or if a parameter is repeated and is no list.
    """
    try:
        unquote_to_bytes(request.scope["query_string"]).decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest("the query is not UTF-8: for other bytes there is filter_encoding=base64") from error
    types = {each.alias: each.field_info.annotation for each in request.scope["route"].dependant.query_params}
    names = [name for name, _ in request.query_params.multi_items()]
    for name in dict.fromkeys(names):
        if name not in types:
            near = difflib.get_close_matches(name, types, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InvalidRequest(f"no such parameter{hint}", parameter=name[:100])
        if names.count(name) > 1 and get_origin(types[name]) is not list:
            raise InvalidRequest("the parameter is given more than once", parameter=name)
