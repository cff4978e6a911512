"""Offsets, positions, times and ranges. The type of a range defines whether it includes its end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, NewType

from .errors import InvalidRequest

Offset = NewType("Offset", int)
"""A record offset in a user partition."""

Position = NewType("Position", int)
"""An offset in one partition of the tier-state topic."""

TimestampMs = NewType("TimestampMs", int)
"""Milliseconds since the epoch; -1 means none, as in Kafka."""


def moment(ms: int) -> str:
    """Return a time in milliseconds since the epoch as ISO 8601 text, in UTC, with seconds."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Extent(NamedTuple):
    """The first offset of a log, and its end (exclusive). The log is empty if they are equal."""

    start: Offset
    end: Offset

    def within(self, outer: Extent | None) -> bool:
        """Return whether ``outer`` has all of these offsets. None has no offsets."""
        return outer is not None and outer.start <= self.start and self.end <= outer.end


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets ``start`` to ``end``, both included. A range is never empty."""

    start: Offset
    end: Offset

    def __post_init__(self) -> None:
        if self.start < 0 or self.end < self.start:
            raise InvalidRequest("not an offset range", start=self.start, end=self.end)

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset <= self.end

    def __len__(self) -> int:
        return self.end - self.start + 1

    def __str__(self) -> str:
        return f"{self.start}..{self.end}"

    def overlap(self, other: OffsetRange) -> OffsetRange | None:
        start, end = max(self.start, other.start), min(self.end, other.end)
        return OffsetRange(start, end) if start <= end else None

    def without(self, *others: OffsetRange) -> list[OffsetRange]:
        """Return the parts of this range that are in none of ``others``, ascending."""
        parts = [self]
        for other in others:
            sides: list[tuple[int, int]] = []
            for part in parts:
                sides += (part.start, min(part.end, other.start - 1)), (max(part.start, other.end + 1), part.end)
            parts = [OffsetRange(Offset(start), Offset(end)) for start, end in sides if start <= end]
        return parts


@dataclass(frozen=True, slots=True, order=True)
class ByteRange:
    """The bytes ``start`` to ``stop`` of an object, ``stop`` excluded. A range is never empty."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        if self.start < 0 or self.stop <= self.start:
            raise InvalidRequest("not a byte range", start=self.start, stop=self.stop)

    def __len__(self) -> int:
        return self.stop - self.start
