"""Which accepted, finished, lineage-valid segment owns which offsets, and how far they reach without a gap."""

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
    """``segment`` serves exactly ``offsets``, clipped to the lineage and to its neighbours."""

    offsets: OffsetRange
    segment: RemoteSegment


class Coverage:
    """The remote tier of one partition as a sorted, disjoint list of owned ranges. Supersets win on overlap.

    Equal when the same segments own the same offsets.
    """

    __slots__ = ("_plain", "_starts", "lineage", "owned", "segments")

    def __init__(self, segments: tuple[RemoteSegment, ...], lineage: Lineage) -> None:
        parts, plain = _parts(segments, lineage)
        self._set(segments, lineage, tuple(_disjoint(parts)), plain)

    def _set(
        self, segments: tuple[RemoteSegment, ...], lineage: Lineage, owned: tuple[OwnedRange, ...], plain: bool
    ) -> None:
        self.segments, self.lineage, self.owned, self._plain = segments, lineage, owned, plain
        self._starts = [piece.offsets.start for piece in owned]

    def changed(self, segments: tuple[RemoteSegment, ...], touched: Sequence[OffsetRange]) -> Coverage:
        """What ``Coverage(segments, lineage)`` is, worked out again only where segments came or went.

        ``segments`` in order of start; ``touched`` the ranges of those that are only in them or only in ours.
        """
        first, last = min(each.start for each in touched), max(each.end for each in touched)
        low, high = self._window(first, last)
        if low < high:
            first, last = min(first, self._starts[low]), max(last, self.owned[high - 1].offsets.end)
        begin = bisect_left(segments, first, key=_start)
        parts, plain = _parts(segments[begin : bisect_right(segments, last, key=_start)], self.lineage)
        if not (plain and self._plain):
            return Coverage(segments, self.lineage)
        found = Coverage.__new__(Coverage)
        found._set(segments, self.lineage, (*self.owned[:low], *_disjoint(parts), *self.owned[high:]), plain)
        return found

    def _window(self, first: int, last: int) -> tuple[int, int]:
        """The pieces ``low`` to ``high`` (excluded) that segments within first..last can have to do with.

        A piece that begins where its segment begins was not clipped by one before it: nothing reaches across there.
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
        """Who owns this offset; None for nobody. O(log n)."""
        found = bisect_right(self._starts, offset)
        if found and offset <= self.owned[found - 1].offsets.end:
            return self.owned[found - 1]
        return None

    def next_start(self, offset: int) -> Offset | None:
        """The lowest covered offset at or above this one; None when nothing is."""
        owner = self.at(offset)
        if owner is not None:
            return Offset(offset)
        following = bisect_left(self._starts, offset)
        return self._starts[following] if following < len(self._starts) else None

    def prefix_end(self, start: int) -> Offset:
        """The last offset of gap-free coverage that begins at ``start``; ``start - 1`` when nothing covers it."""
        end = start - 1
        while (owner := self.at(end + 1)) is not None:
            end = owner.offsets.end
        return Offset(end)

    def gaps(self, within: OffsetRange) -> list[OffsetRange]:
        """Offsets of ``within`` that no segment owns."""
        gaps, next_offset = [], within.start
        for piece in self.owned:
            if piece.offsets.end < next_offset or piece.offsets.start > within.end:
                continue
            if piece.offsets.start > next_offset:
                gaps.append(OffsetRange(next_offset, Offset(piece.offsets.start - 1)))
            next_offset = Offset(piece.offsets.end + 1)
        if next_offset <= within.end:
            gaps.append(OffsetRange(next_offset, within.end))
        return gaps


def _start(segment: RemoteSegment) -> Offset:
    return segment.offsets.start


def _parts(segments: Iterable[RemoteSegment], lineage: Lineage) -> tuple[list[OwnedRange], bool]:
    """What of each segment is in lineage, and whether that is nothing or begins where the segment does, for all."""
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
    """Sweep by start, the longer first: who stands keeps what it has, who reaches further owns the rest.

    A range inside another one owns nothing. Of two with the same range the one whose term is higher wins, then the
    lower segment id: any rule would do, but every reader must apply the same one.
    """
    parts = sorted(parts, key=_sweep_order)
    current: OwnedRange | None = None
    for part in parts:
        if current is None:
            current = part
        elif part.offsets.end <= current.offsets.end:
            continue  # a subset of what already stands
        elif part.offsets.start > current.offsets.end:
            yield current
            current = part
        else:
            yield current
            rest = OffsetRange(Offset(current.offsets.end + 1), part.offsets.end)
            current = OwnedRange(rest, part.segment)
    if current is not None:
        yield current
