"""The segments of a partition, classified: the readable ones with their offsets, the others, and illegal facts.

`sort_out` is the definition. `SortingTable` maintains the same result one segment at a time. So a view after one more
fact does not sort ten thousand segments, and does not recompute their coverage.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .coverage import Coverage
from .epochs import Lineage
from .ids import RemoteSegmentId
from .layered_map import LayeredTable
from .offsets import OffsetRange
from .partition_view import SegmentMeaning
from .segment import RemoteSegment, SegmentState

MANY = 8
"""If more than one in this many segments changes, all segments are sorted again."""


@dataclass(frozen=True, slots=True)
class SortedSegments:
    """``readable`` is in order of offset, ``unsettled`` in order of the first fact; ``fenced`` has keys of facts."""

    segments: Mapping[RemoteSegmentId, SegmentMeaning]
    readable: tuple[RemoteSegment, ...]
    coverage: Coverage
    unsettled: tuple[SegmentMeaning, ...]
    fenced: tuple[str, ...]
    contradictions: tuple[str, ...]


def sort_out(segments: Mapping[RemoteSegmentId, SegmentMeaning], lineage: Lineage) -> SortedSegments:
    """Classify the segments by their meaning. This is the definition."""
    readable = tuple(_in_order(segments.values()))
    return _sorted(dict(segments), readable, Coverage(readable, lineage), segments.values())


def _sorted(
    segments: Mapping[RemoteSegmentId, SegmentMeaning],
    readable: tuple[RemoteSegment, ...],
    coverage: Coverage,
    unusual: Iterable[SegmentMeaning],
) -> SortedSegments:
    """Build the result. ``unusual`` has at least each segment that is unreadable or has a fenced or illegal fact."""
    unusual = list(unusual)
    unsettled = (each for each in unusual if each.state is not SegmentState.COPY_SEGMENT_FINISHED)
    return SortedSegments(
        segments=segments,
        readable=readable,
        coverage=coverage,
        unsettled=tuple(sorted(unsettled, key=lambda s: (s.facts[0].position if s.facts else -1, s.segment_id))),
        fenced=tuple(key for each in unusual for key in each.fenced),
        contradictions=tuple(sorted(each.contradiction for each in unusual if each.contradiction)),
    )


def _readable(meaning: SegmentMeaning | None) -> RemoteSegment | None:
    if meaning is None or meaning.state is not SegmentState.COPY_SEGMENT_FINISHED:
        return None
    return meaning.remote


def _in_order(segments: Iterable[SegmentMeaning]) -> list[RemoteSegment]:
    return sorted((remote for each in segments if (remote := _readable(each))), key=_place)


def _is_unusual(meaning: SegmentMeaning) -> bool:
    is_readable = meaning.state is SegmentState.COPY_SEGMENT_FINISHED
    return not is_readable or bool(meaning.fenced) or meaning.contradiction is not None


def _place(segment: RemoteSegment) -> tuple[int, int, str]:
    return segment.offsets.start, segment.offsets.end, segment.segment_id


class SortingTable:
    """The meaning of every segment of a partition, kept classified. Not thread-safe."""

    __slots__ = ("_coverage", "_readable", "_segments", "_touched", "_unusual")

    def __init__(self) -> None:
        self._segments = LayeredTable[RemoteSegmentId, SegmentMeaning]()
        self._readable: list[RemoteSegment] = []
        self._unusual: dict[RemoteSegmentId, SegmentMeaning] = {}
        self._coverage = Coverage((), Lineage())
        self._touched: list[OffsetRange] | None = []

    def put(self, changed: Mapping[RemoteSegmentId, SegmentMeaning | None]) -> None:
        """Replace the meaning of these segments. None means that the segment no longer has facts."""
        few = len(changed) * MANY <= len(self._segments.shown())
        for segment_id, meaning in changed.items():
            before = self._segments.put(segment_id, meaning)
            self._unusual.pop(segment_id, None)
            if meaning is not None and _is_unusual(meaning):
                self._unusual[segment_id] = meaning
            if few:
                self._move(_readable(before), _readable(meaning))
        if not few:
            self._readable, self._touched = _in_order(self._segments.shown().values()), None

    def _move(self, before: RemoteSegment | None, after: RemoteSegment | None) -> None:
        if before is not None:
            del self._readable[bisect_left(self._readable, _place(before), key=_place)]
        if after is not None:
            insort(self._readable, after, key=_place)
        if self._touched is not None:
            self._touched += [each.offsets for each in (before, after) if each is not None]

    def sorted_out(self, lineage: Lineage) -> SortedSegments:
        """Return the result of `sort_out` for these segments."""
        readable = tuple(self._readable)
        if self._touched is None or self._coverage.lineage != lineage:
            self._coverage = Coverage(readable, lineage)
        elif self._touched:
            self._coverage = self._coverage.changed(readable, self._touched)
        self._touched = []
        return _sorted(self._segments.shown(), readable, self._coverage, self._unusual.values())
