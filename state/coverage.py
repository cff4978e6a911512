"""Which accepted, finished, lineage-valid segment owns which offsets, and how far they reach without a gap."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
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
    """The remote tier of one partition as a sorted, disjoint list of owned ranges. Supersets win on overlap."""

    __slots__ = ("_starts", "owned")

    def __init__(self, segments: tuple[RemoteSegment, ...], lineage: Lineage) -> None:
        parts = [OwnedRange(part, segment) for segment in segments for part in readable_ranges(segment, lineage)]
        self.owned = tuple(_disjoint(parts))
        self._starts = [piece.offsets.start for piece in self.owned]

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
        return next((start for start in self._starts if start >= offset), None)

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


def _disjoint(parts: list[OwnedRange]) -> Iterator[OwnedRange]:
    """Sweep by start; of those that cover an offset the one that reaches furthest owns it.

    Of two with the same range the one whose term is higher wins, then the higher segment id: any rule would do, but
    every reader must apply the same one.
    """
    parts = sorted(parts, key=lambda p: (p.offsets.start, -p.offsets.end, -p.segment.term.epoch, p.segment.segment_id))
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
