"""Produce requests and their answers as bytes: one finished batch for one partition, acknowledged by all replicas.

kafka-python takes longer for them than a broker for the batch, and a restore sends thousands a second. All brokers from
2.1 to 4.3 take version 7.
"""

from __future__ import annotations

import struct

API_KEY, VERSION = 0, 7
_ALL_REPLICAS, _NO_TRANSACTION = -1, -1
_PARTITION = struct.Struct(">iihq")
"""Number of partitions, partition, error code, base offset."""


def request_of(topic: str, partition: int, batch: bytes, timeout_ms: int) -> bytes:
    """Return the request without its header."""
    name = topic.encode()
    head = struct.pack(">hhiih", _NO_TRANSACTION, _ALL_REPLICAS, timeout_ms, 1, len(name)) + name
    return head + struct.pack(">iii", 1, partition, len(batch)) + batch


def outcome_of(answer: bytes | memoryview) -> tuple[int, int]:
    """Return error code and base offset of the only partition in an answer. Raises struct.error."""
    _, name_bytes = struct.unpack_from(">ih", answer)
    _, _, code, base = _PARTITION.unpack_from(answer, 6 + name_bytes)
    return code, base
