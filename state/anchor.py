"""A digest of the last known record of a topic. It shows whether the topic still has the same history.

A broker that is restored from a backup assigns positions and leader epochs a second time. But it never writes the same
record at a position a second time: the append times alone differ.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Self

from .offsets import Position, TimestampMs

_FIXED = struct.Struct(">qqIi")


@dataclass(frozen=True, slots=True)
class Anchor:
    """The digest of the record at ``position``. ``sha256`` (hex) covers position, append time, key and value."""

    position: Position
    sha256: str

    @classmethod
    def of(cls, position: Position, timestamp: TimestampMs, key: str, value: bytes | None) -> Self:
        """Return the anchor of a record. A ``value`` of None is a tombstone, which differs from an empty value."""
        name = key.encode()
        fixed = _FIXED.pack(position, timestamp, len(name), -1 if value is None else len(value))
        return cls(position, hashlib.sha256(fixed + name + (value or b"")).hexdigest())
