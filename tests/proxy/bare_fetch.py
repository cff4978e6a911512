"""Fetches of a client that is a bare socket: the test decides what it asks for and when it reads."""

from __future__ import annotations

import socket
import struct

Place = tuple[str, int]


def fetch_of(*places: tuple[str, int, int], max_wait_ms: int, max_bytes: int = 1 << 20, of_all: int = 1 << 26) -> bytes:
    """Return a Fetch of version 4 (FetchRequest.json) for topic, partition and offset of each place."""
    body = struct.pack(">hhih", 1, 4, 1, -1) + struct.pack(">iiiib", -1, max_wait_ms, 1, of_all, 0)
    body += struct.pack(">i", len(places))
    for topic, partition, offset in places:
        name = topic.encode()
        body += struct.pack(">h", len(name)) + name + struct.pack(">iiqi", 1, partition, offset, max_bytes)
    return struct.pack(">i", len(body)) + body


def exactly(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        came = client.recv(size - len(data))
        assert came, "the connection ended"
        data += came
    return data


def records_of(client: socket.socket) -> dict[Place, int]:
    """Return the bytes of records in one answer, by topic and partition."""
    answer = exactly(client, int.from_bytes(exactly(client, 4), "big"))
    at, sizes = 4 + 4 + 4, dict[Place, int]()
    for _ in range(int.from_bytes(answer[8:12], "big")):
        length = int.from_bytes(answer[at : at + 2], "big")
        topic = answer[at + 2 : at + 2 + length].decode()
        at += 2 + length + 4
        for _ in range(int.from_bytes(answer[at - 4 : at], "big")):
            partition, _error, _, _, aborted = struct.unpack_from(">ihqqi", answer, at)
            at += 26 + 16 * max(0, aborted)
            (records,) = struct.unpack_from(">i", answer, at)
            sizes[topic, partition] = max(0, records)
            at += 4 + sizes[topic, partition]
    return sizes
