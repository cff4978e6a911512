"""The offset map: where the records of source offsets are in the target. Pure.

Records have other offsets there, because control records, aborted records and compacted ones are not restored. Source
offsets between two ranges had no record to restore.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from ..state.offsets import Offset

MOST_RUNS = 16
"""A batch whose offsets have more runs than this becomes one sparse range."""


class MappedRange(NamedTuple):
    """The ``records`` records of source offsets ``[source_start, source_end)`` have the target offsets from
    ``target_start`` on. With fewer records than offsets the range is sparse."""

    source_start: Offset
    source_end: Offset
    target_start: Offset
    records: int

    @property
    def target_end(self) -> Offset:
        return Offset(self.target_start + self.records)

    @property
    def is_dense(self) -> bool:
        return self.records == self.source_end - self.source_start


def ranges_of(offsets: Sequence[int], target_start: int) -> Iterator[MappedRange]:
    """Yield the ranges of records with these ascending source ``offsets``, one after the other in the target."""
    if offsets[-1] - offsets[0] + 1 == len(offsets):
        yield MappedRange(Offset(offsets[0]), Offset(offsets[-1] + 1), Offset(target_start), len(offsets))
        return
    borders = [0, *(at for at, (left, right) in enumerate(pairwise(offsets), 1) if right != left + 1), len(offsets)]
    if len(borders) > MOST_RUNS + 1:
        borders = [0, len(offsets)]
    for start, stop in pairwise(borders):
        first, last = Offset(offsets[start]), Offset(offsets[stop - 1] + 1)
        yield MappedRange(first, last, Offset(target_start + start), stop - start)


def merged(ranges: Iterable[MappedRange]) -> list[MappedRange]:
    """Return the ranges with neighbours joined, where both logs go on without a gap."""
    joined: list[MappedRange] = []
    for each in ranges:
        last = joined[-1] if joined else None
        dense = last is not None and last.is_dense and each.is_dense
        if last is not None and dense and (last.source_end, last.target_end) == (each.source_start, each.target_start):
            joined[-1] = MappedRange(last.source_start, each.source_end, last.target_start, last.records + each.records)
        else:
            joined.append(each)
    return joined


def translated(ranges: Sequence[MappedRange], offset: int) -> Offset | None:
    """Return the target offset at which a reader of the source that is at ``offset`` goes on; None without ranges.

    No record at or above ``offset`` lies below the result in the target. The result is exact outside of sparse ranges;
    in one, some records below ``offset`` may follow it again.
    """
    if not ranges:
        return None
    at = bisect_right(ranges, offset, key=lambda each: each.source_start) - 1
    if at < 0:
        return ranges[0].target_start
    within = ranges[at]
    if offset < within.source_end:
        if within.is_dense:
            return Offset(within.target_start + offset - within.source_start)
        # at most (source_end - offset) of its records are at or above the offset
        return Offset(max(within.target_start, within.target_end - (within.source_end - offset)))
    return ranges[at + 1].target_start if at + 1 < len(ranges) else within.target_end
