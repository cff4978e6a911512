"""Chooses the rolled segment that is copied next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..state.lineage import is_owned
from ..state.local_segments import LocalSegment, LocalSegments
from ..state.offsets import Offset, OffsetRange, TimestampMs
from ..state.partition_view import PartitionView
from ..state.routing import LocalBounds
from .observed import Observed
from .reasons import Reason, Why, lasting


@dataclass(frozen=True, slots=True)
class CopyCandidate:
    """A rolled segment on this broker's disk, wholly below the last stable offset, that is not in the remote tier."""

    base_offset: Offset
    next_base: Offset
    size_bytes: int

    @property
    def offsets(self) -> OffsetRange:
        """Return the offsets up to the next segment's base minus one. Compaction may have removed the last records."""
        return OffsetRange(self.base_offset, Offset(self.next_base - 1))


def copied_offset(view: PartitionView, bounds: LocalBounds) -> Offset:
    """Return the last offset copied without a gap from max(log start, local start) on; start - 1 if there is none.

    The local start counts because a gap below it can never be copied, and would otherwise end all copying.
    """
    return view.coverage.prefix_end(max(view.log_start or 0, bounds.local_start))


def next_candidate(
    view: PartitionView, seen: Observed, now: TimestampMs, lag_ms: int = 0, pinned_s: float = 0.0
) -> CopyCandidate | Why:
    """Return the rolled segment that contains copied offset + 1, or the reason why it is not copied now.

    An offset whose epoch is unknown, or not in the lineage in force, is not copied: its copy would cover nothing and
    would be repeated again and again. ``lag_ms`` keeps young segments local only (``copy.lag``). Segments with
    timestamps in the future do not count as young (KIP-1241), because they might stay young for years. ``pinned_s``:
    for how many seconds this agent has seen the last stable offset unchanged, below the high watermark.
    """
    bounds, epochs = seen.bounds, seen.epochs
    next_offset = Offset(copied_offset(view, bounds) + 1)
    local = LocalSegments.of(seen.segments)
    index = local.number_at(next_offset)
    if index == len(local.rolled):
        return _all_copied(next_offset, seen.segments)
    segment = local.rolled[index]
    if segment.base_offset > next_offset:
        text = f"offset {next_offset} is in no local segment: the next one begins at {segment.base_offset}"
        return Why(Reason.NO_LOCAL_SEGMENT, text)
    if segment.next_base > bounds.last_stable_offset:
        return why_not_stable(segment, bounds, pinned_s)
    epoch = epochs.epoch_at(next_offset)
    ruled = view.term is not None and view.term.epoch == bounds.leader_epoch  # otherwise a new term begins first
    if epoch is None or (ruled and not is_owned(next_offset, epoch, view.lineage)):
        first = seen.checkpoint.first_offset if seen.checkpoint.entries else "none"
        text = f"no leader epoch of offset {next_offset} is known: the broker's checkpoint begins at {first}"
        return Why(Reason.NO_EPOCH, f"{text}, and the batch shows none that fits")
    age = now - segment.max_timestamp
    if 0 <= age < lag_ms:
        text = f"segment {_range(segment)} is {lasting(age)} old, younger than copy.lag {lasting(lag_ms)}"
        return Why(Reason.COPY_LAG, f"{text}: in {lasting(lag_ms - age)}")
    return CopyCandidate(segment.base_offset, segment.next_base, segment.size_bytes)


def why_not_stable(segment: LocalSegment, bounds: LocalBounds, pinned_s: float) -> Why:
    """Return why a rolled segment is not wholly below the last stable offset. ``pinned_s``: as in `next_candidate`."""
    stable, high = bounds.last_stable_offset, bounds.high_watermark
    pinned = lasting(1000 * int(pinned_s))
    where = f"segment {_range(segment)} of {segment.size_bytes:,} bytes"
    if stable >= high:
        return Why(Reason.NOT_REPLICATED, f"high watermark {high} is not past {where}: a replica in sync has no more")
    return Why(
        Reason.OPEN_TRANSACTION,
        f"a transaction is open: the last stable offset {stable} is not past {where}, for {pinned} at least",
    )


def _all_copied(next_offset: int, segments: Sequence[LocalSegment]) -> Why:
    if not segments:
        return Why(Reason.ALL_COPIED, "every rolled segment is copied: the broker has none on its disk")
    active = segments[-1]
    text = f"every rolled segment is copied, up to offset {next_offset - 1}; the active one begins at"
    return Why(Reason.ALL_COPIED, f"{text} {active.base_offset} and has {active.size_bytes:,} bytes")


def _range(segment: LocalSegment) -> str:
    return f"{segment.base_offset}..{segment.next_base - 1}"
