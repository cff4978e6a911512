"""Requests and answers of ListOffsets and OffsetForLeaderEpoch: read them, and patch entries of answers in place.

`older_offsets.py` patches only entries without an error, for which the broker has checked the client's permission. If
the remote tier cannot be read, it writes an error: with the broker's answer consumers would skip remote records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ..broker.wire import Frame
from ..state.routing import Isolation
from .apis import APIS, Key
from .fetch_request import Place

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LAST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
BROKERS_OWN = (LATEST, EARLIEST_LOCAL, EARLIEST_PENDING)
_FOUND = struct.Struct(">hqq")
_EPOCH = struct.Struct(">i")
_END = struct.Struct(">iq")
_INT16 = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class OffsetsAsked:
    """A ListOffsets request. It has for each partition a timestamp, or one of the negative constants above."""

    timestamps: dict[Place, int]
    isolation: Isolation


def read_list_offsets(data: bytes | bytearray, at: int, version: int) -> OffsetsAsked:
    """Return the contents of a ListOffsets request. Raises Malformed."""
    frame, flexible = Frame(data, at), APIS[Key.LIST_OFFSETS].is_flexible(version)
    frame.int32()  # replica
    committed = version >= 2 and frame.int8() == 1
    timestamps: dict[Place, int] = {}
    for _ in range(frame.count(flexible, 3)):
        topic = frame.string(flexible)
        for _ in range(frame.count(flexible, 12)):
            number = frame.int32()
            if version >= 4:
                frame.int32()  # current leader epoch
            timestamps[topic, number] = frame.int64()
            frame.tags(flexible)
        frame.tags(flexible)
    if version >= 10:
        frame.int32()  # timeout
    frame.tags(flexible)
    frame.done()
    return OffsetsAsked(timestamps, Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED)


@dataclass(frozen=True, slots=True)
class OffsetSaid:
    """One entry of a ListOffsets answer. ``at``: its position. ``offset`` is -1 if there is no such record."""

    place: Place
    error: int
    timestamp: int
    offset: int
    at: int
    has_epoch: bool

    def says(self, body: bytearray, timestamp: int, offset: int, epoch: int) -> None:
        _FOUND.pack_into(body, self.at, 0, timestamp, offset)
        if self.has_epoch:
            _EPOCH.pack_into(body, self.at + _FOUND.size, epoch)

    def fails(self, body: bytearray, code: int) -> None:
        self.says(body, -1, -1, -1)
        _INT16.pack_into(body, self.at, code)


def offsets_said(body: bytes | bytearray, version: int) -> Iterator[OffsetSaid]:
    """Yield the entries of a ListOffsets answer. Raises Malformed."""
    frame, flexible = Frame(body), APIS[Key.LIST_OFFSETS].is_flexible(version)
    if version >= 2:
        frame.int32()  # throttle time
    for _ in range(frame.count(flexible, 3)):
        topic = frame.string(flexible)
        for _ in range(frame.count(flexible, 22)):
            number, at = frame.int32(), frame.skip(_FOUND.size)
            error, timestamp, offset = _FOUND.unpack_from(body, at)
            if version >= 4:
                frame.int32()
            frame.tags(flexible)
            yield OffsetSaid((topic, number), error, timestamp, offset, at, version >= 4)
        frame.tags(flexible)
    frame.tags(flexible)
    frame.done()


def read_epochs(data: bytes | bytearray, at: int, version: int) -> dict[Place, int]:
    """Return the requested epoch of each partition in an OffsetForLeaderEpoch request. Raises Malformed."""
    frame, flexible = Frame(data, at), APIS[Key.OFFSET_FOR_LEADER_EPOCH].is_flexible(version)
    if version >= 3:
        frame.int32()  # replica
    epochs: dict[Place, int] = {}
    for _ in range(frame.count(flexible, 3)):
        topic = frame.string(flexible)
        for _ in range(frame.count(flexible, 12)):
            number, _current = frame.int32(), frame.int32()
            epochs[topic, number] = frame.int32()
            frame.tags(flexible)
        frame.tags(flexible)
    frame.tags(flexible)
    frame.done()
    return epochs


@dataclass(frozen=True, slots=True)
class EpochSaid:
    """One entry of an OffsetForLeaderEpoch answer. ``end`` is exclusive; it and ``epoch`` are -1 if unknown."""

    place: Place
    error: int
    epoch: int
    end: int
    at: int
    error_at: int

    def says(self, body: bytearray, epoch: int, end: int) -> None:
        _END.pack_into(body, self.at, epoch, end)

    def fails(self, body: bytearray, code: int) -> None:
        self.says(body, -1, -1)
        _INT16.pack_into(body, self.error_at, code)


def epochs_said(body: bytes | bytearray, version: int) -> Iterator[EpochSaid]:
    """Yield the entries of an OffsetForLeaderEpoch answer. Raises Malformed."""
    frame, flexible = Frame(body), APIS[Key.OFFSET_FOR_LEADER_EPOCH].is_flexible(version)
    frame.int32()  # throttle time
    for _ in range(frame.count(flexible, 3)):
        topic = frame.string(flexible)
        for _ in range(frame.count(flexible, 18)):
            error_at = frame.at
            error, number, at = frame.int16(), frame.int32(), frame.skip(_END.size)
            epoch, end = _END.unpack_from(body, at)
            frame.tags(flexible)
            yield EpochSaid((topic, number), error, epoch, end, at, error_at)
        frame.tags(flexible)
    frame.tags(flexible)
    frame.done()
