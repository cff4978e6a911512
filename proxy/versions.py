"""ApiVersions: offer the broker's versions of requests, reduced to those that the proxy supports (`apis.py`)."""

from __future__ import annotations

import struct

from ..broker.wire import Frame, length_of
from .apis import APIS

UNSUPPORTED_VERSION = 35
_RANGE = struct.Struct(">hhh")


def offered(body: bytes, version: int, *, read_only: bool) -> bytes:
    """Return the body of an ApiVersions answer, reduced to the supported versions. Raises Malformed.

    ``version`` is the request's version. A broker that does not support it answers in version 0, with an error.
    """
    frame = Frame(body)
    error = frame.int16()
    flexible = version >= 3 and error != UNSUPPORTED_VERSION
    begin = frame.at
    ranges = []
    for _ in range(frame.count(flexible, _RANGE.size)):
        at = frame.skip(_RANGE.size)
        key, oldest, newest = _RANGE.unpack_from(body, at)
        tags = frame.at
        frame.tags(flexible)
        api = APIS.get(key)
        if api is None or (read_only and api.changes):
            continue
        oldest, newest = max(oldest, api.oldest), min(newest, api.newest)
        if oldest <= newest:
            ranges.append(_RANGE.pack(key, oldest, newest) + body[tags : frame.at])
    return body[:begin] + length_of(len(ranges), flexible) + b"".join(ranges) + body[frame.at :]
