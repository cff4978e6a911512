"""Which rolled segment is copied next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..state.epochs import Lineage
from ..state.offsets import Offset, OffsetRange, TimestampMs
from ..state.partition_view import PartitionView
from ..state.retention import LocalSegment
from ..state.routing import LocalBounds


@dataclass(frozen=True, slots=True)
class CopyCandidate:
    """A rolled segment on this broker's disk, wholly below the last stable offset, that is not in the remote tier."""

    base_offset: Offset
    next_base: Offset
    size_bytes: int

    @property
    def offsets(self) -> OffsetRange:
        """From its base to the next segment's base minus one; records may end earlier."""
        return OffsetRange(self.base_offset, Offset(self.next_base - 1))


@dataclass(frozen=True, slots=True)
class NothingToCopy:
    """Why no segment is a candidate now."""

    reason: str


def copied_offset(view: PartitionView, bounds: LocalBounds) -> Offset:
    """The end of gap-free accepted coverage that starts at max(log start, local start)*; start - 1 when none.

    *Starting at the log start alone would never copy again once a gap below the local start exists.
    """
    return view.coverage.prefix_end(max(view.log_start or 0, bounds.local_start))


def next_candidate(
    view: PartitionView,
    bounds: LocalBounds,
    segments: Sequence[LocalSegment],
    epochs: Lineage,
    now: TimestampMs,
    lag_ms: int = 0,
) -> CopyCandidate | NothingToCopy:
    """The rolled segment that contains copied offset + 1.

    ``segments``: ascending, the last one active. ``epochs``: the broker's own checkpoint; a copy of an offset that it
    gives no epoch would cover nothing, and be made again and again*. ``lag_ms`` keeps young segments local only
    (``copy.lag``); records of the future are not young (KIP-1241): who knows when they will be.
    """
    wanted = copied_offset(view, bounds) + 1
    for segment in segments[:-1]:
        if segment.next_base <= wanted:
            continue
        if segment.base_offset > wanted:
            return NothingToCopy(f"offset {wanted} is in no local segment")
        if segment.next_base > bounds.last_stable_offset:
            return NothingToCopy(f"last stable offset {bounds.last_stable_offset} is inside the segment")
        if epochs.epoch_at(wanted) is None:
            return NothingToCopy(f"offset {wanted} has no leader epoch in the broker's checkpoint")
        if 0 <= now - segment.max_timestamp < lag_ms:
            return NothingToCopy("younger than copy.lag")
        return CopyCandidate(segment.base_offset, segment.next_base, segment.size_bytes)
    return NothingToCopy("every rolled segment is copied")
