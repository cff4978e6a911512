"""Level 0 of `verify`: a partition's view must be consistent with itself and with the broker's bounds. Without I/O.

Severities, worst first: *corrupt* (a state that must never be: page a human), *gap* (offsets that belong to no tier),
*finding* (a person must examine it; nothing is lost), *waiting* (a normal state that ends by itself, by a grace period,
the archive or retention).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from ..state.facts import SegmentCopyStarted, SegmentDeleteFinished, SegmentDeleteStarted
from ..state.ids import RemoteSegmentId, TopicIdPartition, writer_of
from ..state.lineage import readable_ranges, settles
from ..state.offsets import Offset, OffsetRange
from ..state.partition_view import PartitionView, SegmentMeaning
from ..state.routing import LocalBounds, in_force
from ..state.segment import RemoteSegment, SegmentState

CLOCK_TOLERANCE_MS = 3_600_000
"""A record's time may be this much later than its copy before it counts as a time in the future."""

CUT_BEFORE_COPY = "were deleted on the broker by DeleteRecords before they were copied"


class Severity(StrEnum):
    """The severity of a finding. The order is worst first."""

    CORRUPT = "corrupt"
    GAP = "gap"
    FINDING = "finding"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `verify`. ``object``: a key in the store. ``partition`` None: it is about the tier-state topic."""

    level: int
    severity: Severity
    partition: TopicIdPartition | None
    what: str
    segment_id: RemoteSegmentId | None = None
    object: str | None = None


def check_view(view: PartitionView, bounds: LocalBounds | None) -> Iterator[Finding]:
    """Yield the findings: contradictions within the view or with the broker, gaps, and unfinished operations.

    ``bounds`` None: the broker did not answer. Then checks against the broker are left out, and gaps are found only
    between remote segments.
    """

    def found(severity: Severity, what: str, segment_id: RemoteSegmentId | None = None) -> Finding:
        return Finding(0, severity, view.partition, what, segment_id)

    for what in view.degraded:
        yield found(Severity.FINDING if what in view.later else Severity.CORRUPT, f"degraded: {what}")
    for segment in view.segments.values():
        if segment.contradiction:
            yield found(Severity.CORRUPT, f"contradiction: {segment.contradiction}", segment.segment_id)
    for hold in view.holds:
        by = writer_of(hold.broker_id)
        yield found(Severity.FINDING, f"held by {by}: {hold.reason}: {hold.first} / {hold.second}")
    for severity, what in _bounds(view, bounds):
        yield found(severity, what)
    if view.lineage_unknown:
        yield found(Severity.FINDING, "lineage unknown: remote segments exist that the current lineage cannot place")
    for segment in view.segments.values():
        for severity, what in _life(segment):
            yield found(severity, what, segment.segment_id)
    owned = _owned(view)
    for remote in view.readable:
        for severity, what in (*_descriptor(remote), *_place(view, remote, owned.get(remote.segment_id, 0))):
            yield found(severity, what, remote.segment_id)


def overlap_bytes(view: PartitionView) -> int:
    """Return the estimated bytes of plain logs that exist twice: of offsets that another segment serves."""
    owned = _owned(view)
    return sum(_overlap(view, segment, owned.get(segment.segment_id, 0)) for segment in view.readable)


def _bounds(view: PartitionView, bounds: LocalBounds | None) -> Iterator[tuple[Severity, str]]:
    start, last = view.log_start, view.coverage.owned[-1].offsets.end if view.coverage.owned else None
    if start is None and view.readable:
        yield Severity.FINDING, "no fact names a log start, but there are segments"
    begin = start if start is not None else (bounds.local_start if bounds else None)
    end = bounds.local_start - 1 if bounds else last
    if begin is not None and end is not None and end >= begin:
        missing = OffsetRange(begin, Offset(end))
        for gap in view.gaps(missing):
            yield Severity.GAP, f"offsets {gap} belong to no tier"
        for fact, gap in view.gaps_in_force:
            part = gap.overlap(missing)
            for rest in view.coverage.gaps(part) if part is not None else ():
                yield Severity.WAITING, f"offsets {rest} are lost: {fact.accepted_by} accepted it ({fact.reason})"
    if bounds is None:
        return
    ours = in_force(view, bounds)  # else a branch that an election lost explains it, and it is not served
    severity, why = (Severity.CORRUPT, "") if ours else (Severity.FINDING, ", and the leader's epoch has no term yet")
    if start is not None and start > bounds.high_watermark:
        yield severity, f"the log start {start} is above the high watermark {bounds.high_watermark}{why}"
    if last is not None and last >= bounds.high_watermark:
        yield severity, f"remote offsets reach {last}, the high watermark is {bounds.high_watermark}{why}"
    begin = Offset(max(bounds.local_start, start or 0))
    if last is not None and last >= begin:
        for gap in view.coverage.gaps(OffsetRange(begin, last)):
            yield Severity.FINDING, f"offsets {gap} are local only, between segments that are copied"
    if view.trim_intended is not None and bounds.local_start > max(view.trim_intended, start or 0):
        yield (
            Severity.FINDING,
            f"the local start {bounds.local_start} is above the last trim {view.trim_intended}: DeleteRecords by hand?",
        )


def _life(segment: SegmentMeaning) -> Iterator[tuple[Severity, str]]:
    if segment.state is SegmentState.ABANDONED and segment.contradiction is None:
        yield Severity.WAITING, "abandoned: waits to be swept"
    if segment.state is SegmentState.DELETE_SEGMENT_STARTED:
        fact = segment.deleting.fact if segment.deleting else None
        since = f" since {fact.at} ({fact.reason})" if isinstance(fact, SegmentDeleteStarted) else ""
        yield Severity.WAITING, f"a delete stands{since}"
    if segment.state is SegmentState.DELETE_SEGMENT_FINISHED:
        yield Severity.WAITING, "deleted: its facts wait to be erased"
    started = next((live.fact.attempt for live in segment.facts if isinstance(live.fact, SegmentCopyStarted)), None)
    remote = segment.remote
    if started is not None and remote is not None and segment.contradiction is None:
        for name in ("partition", "topic", "broker_id", "offsets", "object_key"):
            one, two = getattr(started, name), getattr(remote, name)
            if one != two and not (name == "broker_id" and started.broker_id < 0):  # a recovery's copy
                yield Severity.CORRUPT, f"{name} is {two}, but its copy began with {one}"
    for live in segment.facts:
        if isinstance(live.fact, SegmentDeleteStarted | SegmentDeleteFinished):
            subject = live.fact.subject
            if isinstance(subject, RemoteSegment) and remote is not None and subject != remote:
                yield Severity.CORRUPT, f"{live.key} describes it otherwise"


def _descriptor(segment: RemoteSegment) -> Iterator[tuple[Severity, str]]:
    offsets, epochs = segment.offsets, segment.leader_epochs.entries
    # epochs may begin above the start: DeleteRecords cut the log and its epoch checkpoint there before the copy
    if epochs[0].start_offset < offsets.start or epochs[-1].start_offset > offsets.end:
        yield Severity.CORRUPT, f"its epochs are not of its offsets {offsets}: {epochs}"
    if epochs[-1].epoch > segment.term.epoch:
        yield Severity.CORRUPT, f"its epoch {epochs[-1].epoch} is later than the term that copied it, {segment.term}"
    if not 0 <= segment.record_count <= len(offsets):
        yield Severity.CORRUPT, f"{segment.record_count} records do not fit its offsets {offsets}"
    if segment.record_count and segment.last_record_offset not in offsets:
        yield Severity.CORRUPT, f"its last record {segment.last_record_offset} is not in its offsets {offsets}"
    if segment.max_timestamp < -1:
        yield Severity.CORRUPT, f"its max timestamp is {segment.max_timestamp}"
    if segment.max_timestamp > segment.copied_at + CLOCK_TOLERANCE_MS:
        yield (
            Severity.FINDING,
            f"its max timestamp {segment.max_timestamp} is later than its copy: retention takes that",
        )


def _place(view: PartitionView, segment: RemoteSegment, owned: int) -> Iterator[tuple[Severity, str]]:
    if lost := sum(out_of_lineage(view, segment).values()):
        above = segment.offsets.end + 1 - max(segment.offsets.start, view.log_start or 0)
        yield Severity.WAITING, "out of lineage" if lost == above else f"out of lineage: {lost} of its offsets"
    if size := _overlap(view, segment, owned):
        yield Severity.WAITING, f"overlaps others: about {size} bytes of it are served by them"


def out_of_lineage(view: PartitionView, segment: RemoteSegment) -> dict[str, int]:
    """Return how many of its offsets from the log start on are not served, by cause. Empty if all are served."""
    start, stop = max(segment.offsets.start, view.log_start or 0), segment.offsets.end + 1
    inside = sum(max(0, part.end + 1 - max(part.start, start)) for part in readable_ranges(segment, view.lineage))
    cut = max(0, min(segment.leader_epochs.first_offset or 0, stop) - start)  # no epoch has them
    settled = any(settles(fact.lineage, view.lineage) for fact in view.settled_lineages)
    is_other = settled and segment.offsets.start < (view.lineage.first_offset or 0)
    log = "are of another log, as a person settled" if is_other else "are of a log that an election gave up"
    counts = ((CUT_BEFORE_COPY, cut), (log, max(0, stop - start) - inside - cut))
    return {cause: count for cause, count in counts if count}


def _overlap(view: PartitionView, segment: RemoteSegment, owned: int) -> int:
    inside = sum(len(part) for part in readable_ranges(segment, view.lineage))
    return segment.log_bytes * (inside - owned) // len(segment.offsets)


def _owned(view: PartitionView) -> dict[RemoteSegmentId, int]:
    owned: dict[RemoteSegmentId, int] = {}
    for piece in view.coverage.owned:
        owned[piece.segment.segment_id] = owned.get(piece.segment.segment_id, 0) + len(piece.offsets)
    return owned
