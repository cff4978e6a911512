"""Replace brokers' addresses in answers with the addresses of the proxy's listeners. All other bytes are unchanged.

    find the nodes in an answer  ->  open a listener for each node  ->  send the changed answer

`nodes` finds the addresses, and `rewritten` replaces them once each node has a listener. Only the part with the brokers
of a Metadata answer is held in memory (`read_brokers`), because the rest may be as large as the cluster.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ..broker.wire import Frame, string_of
from .apis import APIS, Key
from .share_fetch import share_reads, skip_acknowledged

_PORT = struct.Struct(">i")
Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Named:
    """A node in an answer, and the range of bytes that holds its host and port."""

    node: int
    host: str
    port: int
    start: int
    stop: int


def nodes(key: Key, body: bytes, version: int) -> list[Named]:
    """Return every node that has an address in the answer. Raises Malformed."""
    frame, flexible = Frame(body), APIS[key].is_flexible(version)
    return list(_READS[key](frame, version, flexible))


def rewritten(body: bytes, named_nodes: list[Named], listeners: Mapping[int, Address], *, flexible: bool) -> bytes:
    """Return the body with the listeners' addresses. Nodes without a listener, as -1 for none, are unchanged."""
    parts, at = [], 0
    for node in named_nodes:
        address = listeners.get(node.node)
        if address is None:
            continue
        parts += [body[at : node.start], string_of(address[0].encode(), flexible), _PORT.pack(address[1])]
        at = node.stop
    return b"".join([*parts, body[at:]])


def read_brokers(frame: Frame, version: int) -> int:
    """Read the header and the brokers of a Metadata answer. Return the position of its body. Raises Malformed."""
    flexible = APIS[Key.METADATA].is_flexible(version)
    frame.tags(flexible)
    body = frame.at
    for _ in _metadata(frame, version, flexible):
        pass
    return body


def _named(frame: Frame, flexible: bool) -> Named:
    node, start = frame.int32(), frame.at
    host, port = frame.string(flexible), frame.int32()
    return Named(node, host, port, start, frame.at)


def _metadata(frame: Frame, version: int, flexible: bool) -> Iterator[Named]:
    if version >= 3:
        frame.int32()  # throttle time
    for _ in range(frame.count(flexible, 4)):
        yield _named(frame, flexible)
        if version >= 1:
            frame.raw_string(flexible)  # rack
        frame.tags(flexible)


def _coordinators(frame: Frame, version: int, flexible: bool) -> Iterator[Named]:
    if version >= 1:
        frame.int32()  # throttle time
    if version < 4:
        frame.int16()
        if version >= 1:
            frame.raw_string(flexible)  # error message
        yield _named(frame, flexible)
        return
    for _ in range(frame.count(flexible, 4)):
        frame.raw_string(flexible)  # the group or the transactional id
        yield _named(frame, flexible)
        frame.int16()
        frame.raw_string(flexible)
        frame.tags(flexible)


def _cluster(frame: Frame, version: int, flexible: bool) -> Iterator[Named]:
    frame.int32()
    frame.int16()
    frame.raw_string(flexible)  # error message
    if version >= 1:
        frame.int8()  # endpoint type
    frame.raw_string(flexible)  # cluster id
    frame.int32()  # controller
    for _ in range(frame.count(flexible, 4)):
        yield _named(frame, flexible)
        frame.raw_string(flexible)  # rack
        if version >= 2:
            frame.int8()  # fenced
        frame.tags(flexible)


def _share_fetch(frame: Frame, version: int, flexible: bool) -> Iterator[Named]:
    for _ in share_reads(frame):
        pass
    yield from _endpoints(frame, flexible)


def _share_acknowledge(frame: Frame, version: int, flexible: bool) -> Iterator[Named]:
    skip_acknowledged(frame, version)
    yield from _endpoints(frame, flexible)


def _endpoints(frame: Frame, flexible: bool) -> Iterator[Named]:
    for _ in range(frame.count(flexible, 4)):
        yield _named(frame, flexible)
        frame.raw_string(flexible)  # rack
        frame.tags(flexible)


_READS: dict[Key, Callable[[Frame, int, bool], Iterator[Named]]] = {
    Key.METADATA: _metadata,
    Key.FIND_COORDINATOR: _coordinators,
    Key.DESCRIBE_CLUSTER: _cluster,
    Key.SHARE_FETCH: _share_fetch,
    Key.SHARE_ACKNOWLEDGE: _share_acknowledge,
}
