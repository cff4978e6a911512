"""Read a Fetch request, and overwrite three of its fields in place.

The session id becomes 0 and the session epoch -1. The broker then opens no fetch session (KIP-227), so every request
lists all its partitions. ``max_bytes`` is lowered if remote records are expected, because such an answer is held.

Versions 13 and up have topic ids in place of names. The caller gives the names (`topic_names.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from ..broker.wire import Frame
from ..state.ids import TopicId
from ..state.offsets import Offset
from ..state.routing import Isolation
from .apis import APIS, Key

Place = tuple[str, int]
"""Topic and partition."""
_LEAD = struct.Struct(">i4xib")
"""Max wait, (min bytes, skipped,) max bytes, isolation level."""
_MAX_BYTES_AT = 8
_REPLICA_STATE = 1
"""The tag of the field with the replica's id, from version 15 on."""
_INT32, _INT64 = struct.Struct(">i"), struct.Struct(">q")
BEYOND = 2**62
TOPIC_IDS = 13
"""The first version of Fetch, and of Produce, with topic ids in place of names."""
UUID_BYTES = 16
HELD_BYTES = 8 * 1024 * 1024
"""The most bytes of the broker's records in an answer that is held, unless one batch is larger."""
_SESSION = struct.Struct(">ii")
NO_SESSION = (0, -1)


class FetchPosition(NamedTuple):
    """The position to read in one partition. The first batch is returned even if it is larger than ``max_bytes``.

    ``at``: the position of the field with the offset in the request; -1 if no request has it."""

    offset: Offset
    max_bytes: int
    at: int = -1


class FetchRequest(NamedTuple):
    """A Fetch request. ``follower``: a broker sent it, which must get the leader's answer unchanged.

    ``topics``: the topics that have ids in the request, by these 16 bytes. A topic without a known name is a `TopicId`.
    """

    version: int
    max_wait_ms: int
    max_bytes: int
    isolation: Isolation
    follower: bool
    positions: dict[Place, FetchPosition]
    max_bytes_at: int
    topics: dict[bytes, str]

    @property
    def unnamed(self) -> list[bytes]:
        """Return the ids of the topics whose names are unknown."""
        return [raw for raw, topic in self.topics.items() if isinstance(topic, TopicId)]


def read_fetch(data: bytearray, at: int, version: int, names: Mapping[bytes, str]) -> FetchRequest:
    """Return the request whose body begins at ``at``. Overwrites its session fields in ``data``. Raises Malformed.

    ``names``: the names of topics by their ids.
    """
    frame, flexible, entry = Frame(data, at), APIS[Key.FETCH].is_flexible(version), _asked(version)
    replica = frame.int32() if version < 15 else -1
    max_bytes_at = frame.at + _MAX_BYTES_AT
    max_wait_ms, max_bytes, isolation = _LEAD.unpack_from(data, frame.skip(_LEAD.size))
    if version >= 7:
        _SESSION.pack_into(data, frame.skip(_SESSION.size), *NO_SESSION)
    positions: dict[Place, FetchPosition] = {}
    topics: dict[bytes, str] = {}
    for _ in range(frame.count(flexible, 6)):
        topic = frame.string(flexible) if version < TOPIC_IDS else read_topic_id(frame, topics, names)
        for _ in range(frame.count(flexible, 16)):
            begin = frame.skip(entry.size)
            number, offset, most = entry.unpack_from(data, begin)
            positions[topic, number] = FetchPosition(Offset(offset), most, begin + (8 if version >= 9 else 4))
            frame.tags(flexible)
        frame.tags(flexible)
    if version >= 7:
        for _ in range(frame.count(flexible, 3)):  # partitions to remove from a session
            skip_topic(frame, version, flexible)
            frame.skip(4 * frame.count(flexible, 4))
            frame.tags(flexible)
    if version >= 11:
        frame.raw_string(flexible)  # rack
    for field in tagged(frame, flexible):
        if field.tag == _REPLICA_STATE and version >= 15 and field.size >= _INT32.size:
            (replica,) = _INT32.unpack_from(data, field.value_at)
    frame.done()
    level = Isolation.READ_COMMITTED if isolation == 1 else Isolation.READ_UNCOMMITTED
    return FetchRequest(version, max_wait_ms, max_bytes, level, replica >= 0, positions, max_bytes_at, topics)


def read_topic_id(frame: Frame, topics: dict[bytes, str], names: Mapping[bytes, str]) -> str:
    """Read a topic's id. Return its name from ``topics``, to which an unknown id is added. Raises Malformed."""
    begin = frame.skip(UUID_BYTES)
    raw = bytes(frame.data[begin : frame.at])
    topic = topics.get(raw)
    if topic is None:
        topic = topics[raw] = names.get(raw) or TopicId.of(raw)
    return topic


def skip_topic(frame: Frame, version: int, flexible: bool) -> None:
    """Skip a topic's name, or its id, in a message of Fetch or Produce. Raises Malformed."""
    if version < TOPIC_IDS:
        frame.raw_string(flexible)
    else:
        frame.skip(UUID_BYTES)


@cache
def _asked(version: int) -> struct.Struct:
    """Return the layout of an entry: partition, offset and max bytes. It skips the current leader epoch (the broker
    checks it), the epoch of the last fetched record, and the log start offset of a follower."""
    epoch, last_epoch, start = 4 * (version >= 9), 4 * (version >= 12), 8 * (version >= 5)
    return struct.Struct(f">i{epoch}xq{last_epoch + start}xi")


def send_beyond(data: bytearray, position: FetchPosition) -> None:
    """Replace the offset by one beyond every log. The broker then checks the client's rights, and has no record."""
    _INT64.pack_into(data, position.at, BEYOND)


def lower(data: bytearray, request: FetchRequest, most: int) -> None:
    """Lower ``max_bytes`` to ``most`` in ``data``. The broker returns more only if a single batch is larger."""
    if request.max_bytes > most:
        _INT32.pack_into(data, request.max_bytes_at, most)


NODE_ENDPOINTS = 0
UNUSED_TAG = 100
"""No message of Kafka 4.3 has a field with this tag. It takes one byte, like `NODE_ENDPOINTS`."""


class Tagged(NamedTuple):
    """A tagged field: its tag, the position of the tag, and the position and size of its value."""

    tag: int
    at: int
    value_at: int
    size: int


def tagged(frame: Frame, flexible: bool) -> Iterator[Tagged]:
    """Read the tagged fields of a flexible version. Raises Malformed."""
    for _ in range(frame.uvarint() if flexible else 0):
        at, tag, size = frame.at, frame.uvarint(), frame.uvarint()
        yield Tagged(tag, at, frame.skip(size), size)


def hide_addresses(data: bytearray, at: int) -> None:
    """Rename ``NodeEndpoints`` among the tagged fields at ``at``, which end ``data``. Raises Malformed.

    Answers of Produce 10 and Fetch 16 name the new leader of a partition, and in this field the address of that
    leader's broker. A client must not get this address. The field keeps its length, so that an answer can be streamed:
    it gets a tag that no version has, and every client skips unknown tags. The client then asks for the metadata, as
    all clients do without that field.
    """
    frame = Frame(data, at)
    for field in tagged(frame, True):
        if field.tag == NODE_ENDPOINTS:
            data[field.at] = UNUSED_TAG
    frame.done()
