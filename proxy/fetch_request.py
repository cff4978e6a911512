"""Read a Fetch request, and overwrite three of its fields in place.

The session id becomes 0 and the session epoch -1. The broker then opens no fetch session (KIP-227), so every request
lists all its partitions. ``max_bytes`` is lowered if remote records are expected, because such an answer is held.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import NamedTuple

from ..broker.wire import Frame
from ..state.offsets import Offset
from ..state.routing import Isolation
from .apis import APIS, Key

Place = tuple[str, int]
"""Topic and partition."""
_LEAD = struct.Struct(">ii4xib")
"""Replica, max wait, (min bytes, skipped,) max bytes, isolation level."""
_MAX_BYTES_AT = 12
_INT32 = struct.Struct(">i")
_SESSION = struct.Struct(">ii")
NO_SESSION = (0, -1)


class Wanted(NamedTuple):
    """The position to read in one partition. The first batch is returned even if it is larger than ``max_bytes``."""

    offset: Offset
    max_bytes: int


class FetchRequest(NamedTuple):
    """A Fetch request. ``follower``: a broker sent it, which must get the leader's answer unchanged."""

    version: int
    max_wait_ms: int
    max_bytes: int
    isolation: Isolation
    follower: bool
    positions: dict[Place, Wanted]
    max_bytes_at: int


def read_fetch(data: bytearray, at: int, version: int) -> FetchRequest:
    """Return the request whose body begins at ``at``. Overwrites its session fields in ``data``. Raises Malformed."""
    frame, flexible, entry = Frame(data, at), APIS[Key.FETCH].is_flexible(version), _asked(version)
    replica, max_wait_ms, max_bytes, isolation = _LEAD.unpack_from(data, frame.skip(_LEAD.size))
    if version >= 7:
        _SESSION.pack_into(data, frame.skip(_SESSION.size), *NO_SESSION)
    positions: dict[Place, Wanted] = {}
    for _ in range(frame.count(flexible, 6)):
        topic = frame.string(flexible)
        for _ in range(frame.count(flexible, 16)):
            number, offset, most = entry.unpack_from(data, frame.skip(entry.size))
            positions[topic, number] = Wanted(Offset(offset), most)
            frame.tags(flexible)
        frame.tags(flexible)
    if version >= 7:
        for _ in range(frame.count(flexible, 3)):  # partitions to remove from a session
            frame.raw_string(flexible)
            frame.skip(4 * frame.count(flexible, 4))
            frame.tags(flexible)
    if version >= 11:
        frame.raw_string(flexible)  # rack
    frame.tags(flexible)
    frame.done()
    level = Isolation.READ_COMMITTED if isolation == 1 else Isolation.READ_UNCOMMITTED
    return FetchRequest(version, max_wait_ms, max_bytes, level, replica >= 0, positions, at + _MAX_BYTES_AT)


@cache
def _asked(version: int) -> struct.Struct:
    """Return the layout of an entry: partition, offset and max bytes. It skips the current leader epoch (the broker
    checks it), the epoch of the last fetched record, and the log start offset of a follower."""
    epoch, last_epoch, start = 4 * (version >= 9), 4 * (version >= 12), 8 * (version >= 5)
    return struct.Struct(f">i{epoch}xq{last_epoch + start}xi")


def lower(data: bytearray, request: FetchRequest, most: int) -> None:
    """Lower ``max_bytes`` to ``most`` in ``data``. The broker returns more only if a single batch is larger."""
    if request.max_bytes > most:
        _INT32.pack_into(data, request.max_bytes_at, most)
