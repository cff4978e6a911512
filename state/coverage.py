"""Which accepted, finished segment of the lineage owns which offsets, and where the owned offsets have gaps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .epochs import Lineage
from .lineage import readable_ranges
from .offsets import Offset, OffsetRange
from .segment import RemoteSegment


@dataclass(frozen=True, slots=True)
class OwnedRange:
    """The offsets that ``segment`` serves, clipped to the lineage and to the neighbouring segments."""

    offsets: OffsetRange
    segment: RemoteSegment


class Coverage:
    """The remote tier of one partition as a sorted, disjoint list of owned ranges. On overlap, the superset wins.

    Two coverages are equal when the same segments own the same offsets.
    """

    __slots__ = ("_gaps_before", "_plain", "_starts", "lineage", "owned", "segments")

    def __init__(self, segments: tuple[RemoteSegment, ...], lineage: Lineage) -> None:
        parts, self._plain = _parts(segments, lineage)
        self.segments, self.lineage, self.owned = segments, lineage, tuple(_disjoint(parts))
        self._starts = [piece.offsets.start for piece in self.owned]
        self._gaps_before = self._parted(0, len(self.owned))
        """Indexes of the ranges in ``owned`` that follow a gap."""

    def _parted(self, low: int, high: int) -> list[int]:
        owned = self.owned
        return [at for at in range(max(1, low), high) if owned[at - 1].offsets.end + 1 != owned[at].offsets.start]

    def changed(self, segments: tuple[RemoteSegment, ...], touched: Sequence[OffsetRange]) -> Coverage:
        """Return ``Coverage(segments, lineage)``, recomputed only where segments were added or removed.

        ``segments`` are in order of start; ``touched`` are the ranges of the added and the removed segments.
        """
        first, last = min(each.start for each in touched), max(each.end for each in touched)
        low, high = self._window(first, last)
        if low < high:
            first, last = min(first, self._starts[low]), max(last, self.owned[high - 1].offsets.end)
        begin = bisect_left(segments, first, key=_start)
        parts, plain = _parts(segments[begin : bisect_right(segments, last, key=_start)], self.lineage)
        if not (plain and self._plain):
            return Coverage(segments, self.lineage)
        coverage, middle = Coverage.__new__(Coverage), list(_disjoint(parts))
        coverage.segments, coverage.lineage, coverage._plain = segments, self.lineage, plain
        coverage.owned = (*self.owned[:low], *middle, *self.owned[high:])
        coverage._starts = self._starts[:low] + [piece.offsets.start for piece in middle] + self._starts[high:]
        gaps, end = self._gaps_before, low + len(middle)
        before, after = gaps[: bisect_left(gaps, low)], gaps[bisect_right(gaps, high) :]
        between = coverage._parted(low, min(end + 1, len(coverage.owned)))
        coverage._gaps_before = before + between + [at + end - high for at in after]
        return coverage

    def _window(self, first: int, last: int) -> tuple[int, int]:
        """Return the indexes ``low`` to ``high`` (excluded) of owned ranges that a change in first..last may affect.

        A range that begins where its segment begins was not clipped, so no segment reaches across that point.
        """
        low, high = bisect_right(self._starts, first), bisect_right(self._starts, last)
        if low and self.owned[low - 1].offsets.end >= first:
            low -= 1
        while 0 < low < len(self.owned) and self._clipped(low):
            low -= 1
        while high < len(self.owned) and self._clipped(high):
            high += 1
        return low, high

    def _clipped(self, at: int) -> bool:
        return self._starts[at] != _start(self.owned[at].segment)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Coverage) and self.owned == other.owned

    def __hash__(self) -> int:
        return hash(tuple(self._starts))

    def at(self, offset: int) -> OwnedRange | None:
        """Return the range that owns this offset, or None if there is none. O(log n)."""
        above = bisect_right(self._starts, offset)
        if above and offset <= self.owned[above - 1].offsets.end:
            return self.owned[above - 1]
        return None

    def next_start(self, offset: int) -> Offset | None:
        """Return the lowest covered offset at or above this one, or None if there is none."""
        owner = self.at(offset)
        if owner is not None:
            return Offset(offset)
        following = bisect_left(self._starts, offset)
        return self._starts[following] if following < len(self._starts) else None

    def prefix_end(self, start: int) -> Offset:
        """Return the last offset covered without a gap from ``start`` on; ``start - 1`` if ``start`` is not covered."""
        if self.at(start) is None:
            return Offset(start - 1)
        following = bisect_left(self._gaps_before, bisect_right(self._starts, start))
        last = self._gaps_before[following] if following < len(self._gaps_before) else len(self.owned)
        return self.owned[last - 1].offsets.end

    def within(self, offsets: OffsetRange) -> list[OwnedRange]:
        """Return the owned ranges that overlap these offsets, in order. O(log n) plus the size of the result."""
        first = bisect_right(self._starts, offsets.start)
        if first and self.owned[first - 1].offsets.end >= offsets.start:
            first -= 1
        return list(self.owned[first : bisect_right(self._starts, offsets.end)])

    def gaps(self, within: OffsetRange) -> list[OffsetRange]:
        """Return the offsets of ``within`` that no segment owns."""
        gaps, next_offset = [], within.start
        for piece in self.within(within):
            if piece.offsets.start > next_offset:
                gaps.append(OffsetRange(next_offset, Offset(piece.offsets.start - 1)))
            next_offset = Offset(piece.offsets.end + 1)
        if next_offset <= within.end:
            gaps.append(OffsetRange(next_offset, within.end))
        return gaps


def _start(segment: RemoteSegment) -> Offset:
    return segment.offsets.start


def _parts(segments: Iterable[RemoteSegment], lineage: Lineage) -> tuple[list[OwnedRange], bool]:
    """Return all parts in the lineage, and whether each segment has no part or one part that begins at its start."""
    parts, plain = [], True
    for segment in segments:
        ranges = readable_ranges(segment, lineage)
        plain = plain and (not ranges or (len(ranges) == 1 and ranges[0].start == segment.offsets.start))
        parts += [OwnedRange(each, segment) for each in ranges]
    return parts, plain


def _sweep_order(part: OwnedRange) -> tuple[int, int, int, int, str]:
    epoch, position = part.segment.term.order
    return part.offsets.start, -part.offsets.end, -epoch, -position, part.segment.segment_id


def _disjoint(parts: list[OwnedRange]) -> Iterator[OwnedRange]:
    """Yield disjoint ranges, in order of start. A range that reaches further than the current one owns the rest.

    A range inside another range owns nothing. If two ranges are equal, the higher term wins, then the lower segment id.
    Any rule would work, but every reader must apply the same rule.
    """
    parts = sorted(parts, key=_sweep_order)
    current: OwnedRange | None = None
    for part in parts:
        if current is None:
            current = part
        elif part.offsets.end <= current.offsets.end:
            continue  # it lies inside the current range
        elif part.offsets.start > current.offsets.end:
            yield current
            current = part
        else:
            yield current
            rest = OffsetRange(Offset(current.offsets.end + 1), part.offsets.end)
            current = OwnedRange(rest, part.segment)
    if current is not None:
        yield current
