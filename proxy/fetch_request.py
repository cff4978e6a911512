"""What a Fetch request asks for, and the three fields of it that are changed, each where it stands.

Session id 0 and epoch -1: the broker opens no fetch session (KIP-227), so every request says all it wants.
``max_bytes`` is lowered where the answer will be held whole, because remote records go into it.
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
"""Replica, longest wait, (fewest bytes,) most bytes, isolation level."""
_MAX_BYTES_AT = 12
_INT32 = struct.Struct(">i")
_SESSION = struct.Struct(">ii")
NO_SESSION = (0, -1)


class Wanted(NamedTuple):
    """Of one partition. ``max_bytes``: whole batches are given up to it, and the first one in any case."""

    offset: Offset
    max_bytes: int


class FetchRequest(NamedTuple):
    """``follower``: another broker asks, whose log must be the leader's own."""

    version: int
    max_wait_ms: int
    max_bytes: int
    isolation: Isolation
    follower: bool
    wanted: dict[Place, Wanted]
    max_bytes_at: int


def read_fetch(data: bytearray, at: int, version: int) -> FetchRequest:
    """Of a frame with its body at ``at``, whose session fields are overwritten. Raises Malformed."""
    frame, flexible, asked = Frame(data, at), APIS[Key.FETCH].is_flexible(version), _asked(version)
    replica, max_wait_ms, max_bytes, isolation = _LEAD.unpack_from(data, frame.skip(_LEAD.size))
    if version >= 7:
        _SESSION.pack_into(data, frame.skip(_SESSION.size), *NO_SESSION)
    wanted: dict[Place, Wanted] = {}
    for _ in range(frame.count(flexible, 6)):
        topic = frame.string(flexible)
        for _ in range(frame.count(flexible, 16)):
            number, offset, most = asked.unpack_from(data, frame.skip(asked.size))
            wanted[topic, number] = Wanted(Offset(offset), most)
            frame.tags(flexible)
        frame.tags(flexible)
    if version >= 7:
        for _ in range(frame.count(flexible, 3)):  # forgotten in a session
            frame.raw_string(flexible)
            frame.skip(4 * frame.count(flexible, 4))
            frame.tags(flexible)
    if version >= 11:
        frame.raw_string(flexible)  # rack
    frame.tags(flexible)
    frame.done()
    level = Isolation.READ_COMMITTED if isolation == 1 else Isolation.READ_UNCOMMITTED
    return FetchRequest(version, max_wait_ms, max_bytes, level, replica >= 0, wanted, at + _MAX_BYTES_AT)


@cache
def _asked(version: int) -> struct.Struct:
    """Partition, offset, most bytes. Passed over: the leader's epoch as the client knows it, which is the broker's to
    judge; the epoch of the offset; where the log of a follower starts."""
    epoch, last_epoch, start = 4 * (version >= 9), 4 * (version >= 12), 8 * (version >= 5)
    return struct.Struct(f">i{epoch}xq{last_epoch + start}xi")


def lower(data: bytearray, request: FetchRequest, most: int) -> None:
    """The broker answers about ``most`` bytes: more only for one batch that is larger."""
    if request.max_bytes > most:
        _INT32.pack_into(data, request.max_bytes_at, most)
