"""The segments of a partition on the broker's disk, with precomputed sums and extremes for frequent queries."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

from .offsets import Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class LocalSegment:
    """A segment on the broker's disk. ``next_base`` is the base offset of the next segment."""

    base_offset: Offset
    next_base: Offset
    size_bytes: int
    max_timestamp: TimestampMs


class _Rolled:
    """Sums of the sizes of the first n segments. Highest timestamps up to index n, lowest ones from index n on."""

    __slots__ = ("bytes_before", "ends", "newest_to", "oldest_from", "segments")

    def __init__(self, segments: tuple[LocalSegment, ...]) -> None:
        times = [each.max_timestamp for each in segments]
        self.segments, self.ends = segments, [each.next_base for each in segments]
        self.bytes_before = list(accumulate((each.size_bytes for each in segments), initial=0))
        self.newest_to = list(accumulate(times, max))
        self.oldest_from = list(accumulate(reversed(times), min))[::-1]


class LocalSegments(tuple[LocalSegment, ...]):
    """The rolled segments and the active one, ascending. Objects with the same rolled segments share `_Rolled`. Methods
    take O(log n). A rolled segment is identified by its index.
    """

    _rolled: _Rolled

    def __new__(cls, rolled: Iterable[LocalSegment] = (), active: Iterable[LocalSegment] = ()) -> Self:
        rolled = tuple(rolled)
        self = super().__new__(cls, (*rolled, *active))
        self._rolled = _Rolled(rolled)
        return self

    @classmethod
    def of(cls, segments: Sequence[LocalSegment]) -> LocalSegments:
        """Return ``segments`` as this type. They are ascending; the last one is active."""
        return segments if isinstance(segments, LocalSegments) else LocalSegments(segments[:-1], segments[-1:])

    def with_active(self, active: LocalSegment) -> LocalSegments:
        """Return the same rolled segments with this active one; this object itself if the active one is unchanged."""
        if self and self[-1] == active and len(self) > len(self.rolled):
            return self
        segments = tuple.__new__(LocalSegments, (*self.rolled, active))
        segments._rolled = self._rolled
        return segments

    @property
    def rolled(self) -> tuple[LocalSegment, ...]:
        return self._rolled.segments

    def number_at(self, offset: int) -> int:
        """Return the index of the first rolled segment that ends above ``offset``; their count if there is none."""
        return bisect_right(self._rolled.ends, offset)

    def rolled_bytes(self, first: int, stop: int | None = None) -> int:
        before = self._rolled.bytes_before
        return before[-1 if stop is None else stop] - before[first]

    @property
    def size_bytes(self) -> int:
        """Return the size of all segments in bytes, including the active one."""
        return self.rolled_bytes(0) + sum(each.size_bytes for each in self[len(self.rolled) :])

    def oldest_from(self, first: int) -> TimestampMs | None:
        """Return the lowest ``max_timestamp`` of the rolled segments from index ``first`` on; None if there is none."""
        return self._rolled.oldest_from[first] if first < len(self.rolled) else None

    @property
    def newest(self) -> TimestampMs:
        """Return the highest timestamp of all segments. Raises ValueError if there are no segments."""
        return max([*self._rolled.newest_to[-1:], *(each.max_timestamp for each in self[-1:])])

    def all_older(self, moment: int) -> int:
        """Return how many of the first rolled segments have no record of this time or later."""
        return bisect_left(self._rolled.newest_to, moment)

    def released(self, local_bytes: int) -> int:
        """Return how many of the first rolled segments can be deleted while the rest is still ``>= local_bytes``."""
        return bisect_right(self._rolled.bytes_before, self.size_bytes - local_bytes, lo=1) - 1
