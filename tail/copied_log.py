"""Derives from the facts which offset of a leader's log is copied next, and which segments lie below it. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from ..state.epochs import EpochEntry, Lineage
from ..state.lineage import shared_end
from ..state.local_segments import LocalSegment, LocalSegments
from ..state.offsets import Offset, OffsetRange
from ..state.partition_view import PartitionView
from .spool import Piece


def first_missing(view: PartitionView, lineage: Lineage, log_start: Offset) -> Offset:
    """Return the first offset of the leader's log that is not copied. ``lineage``: that of the leader's log.

    The view may be that of an earlier epoch, whose log went on where the leader's log ends or has other records: both
    are the same up to there only. If the leader does not have the offset, nothing can be fetched, and no term begins.
    """
    missing = Offset(view.coverage.prefix_end(Offset(max(view.log_start or 0, log_start))) + 1)
    same = shared_end(view.lineage, lineage)
    return missing if same is None else max(log_start, min(missing, same))


def local_segments(view: PartitionView, log_start: Offset, pieces: Sequence[Piece]) -> LocalSegments:
    """Return the copied segments that the leader still has, then the pieces of the spool. The last one is active.

    If the spool is empty, this is the last copied one: it stays, like a broker's last segment, because an emptied log
    needs a new term.
    """
    first = pieces[0].base
    copied = view.coverage.within(OffsetRange(log_start, Offset(first - 1))) if first > log_start else []
    rolled: list[LocalSegment] = []
    for owned in copied:
        segment, base = owned.segment, owned.offsets.start
        if rolled and rolled[-1].next_base != base:
            rolled.clear()  # a gap: nothing below it can be trimmed
        rolled.append(LocalSegment(base, Offset(owned.offsets.end + 1), segment.log_bytes, segment.max_timestamp))
    if rolled and rolled[-1].next_base != first:
        rolled.clear()
    rolled += [piece.segment for piece in pieces[:-1]]
    active = pieces[-1].segment
    if not active.size_bytes and rolled and len(pieces) == 1:
        active = rolled.pop()
    return LocalSegments(rolled, [replace(active, next_base=active.base_offset)])


def above(lineage: Lineage, log_start: Offset) -> Lineage:
    """Return the lineage as the leader's checkpoint has it once its log starts at ``log_start``."""
    at = bisect_right(lineage.entries, log_start, key=lambda entry: entry.start_offset) - 1
    if at < 0:
        return lineage
    return Lineage((EpochEntry(lineage.entries[at].epoch, log_start), *lineage.entries[at + 1 :]))
