"""By what a topic is known to be of the same history: the last record that somebody has of it.

Positions and leader epochs go back with a broker that is restored from a backup, and are given out a second time; the
record that stood at a position does not come a second time (its time of append alone tells two of them apart).
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
    """``sha256`` (hex) over position, time of append, key and value of the record at ``position``."""

    position: Position
    sha256: str

    @classmethod
    def of(cls, position: Position, timestamp: TimestampMs, key: str, value: bytes | None) -> Self:
        """``value`` None: a tombstone, which is another record than an empty value."""
        name = key.encode()
        fixed = _FIXED.pack(position, timestamp, len(name), -1 if value is None else len(value))
        return cls(position, hashlib.sha256(fixed + name + (value or b"")).hexdigest())
