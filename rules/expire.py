"""Decides which part of the remote tier is deleted next, and why not more. Pure.

    log start moves  →  delete-started  →  grace, leases  →  objects  →  delete-finished

Only a prefix is deleted, oldest first, and only by retention or an operator's order. Rules marked * prevent a loss that
a model or a review found (`docs/tier-state.md`). Lineage never condemns remote data*. The broker's log start never
moves the log start of the facts*. A log start does not hold on another branch*. Retention stops at the first
offset that only the broker has*.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ..state.epochs import LeaderEpoch
from ..state.facts import DeleteReason, SegmentDeleteStarted
from ..state.ids import RemoteSegmentId
from ..state.lineage import is_below
from ..state.local_segments import LocalSegment, LocalSegments
from ..state.object_keys import not_own
from ..state.offsets import Offset, OffsetRange, Position, TimestampMs, moment
from ..state.partition_view import PartitionView, SegmentMeaning
from ..state.retention import UNLIMITED, TopicRetention, WholeLog, counted_from, size_retention_end, time_retention_end
from ..state.routing import LocalBounds
from ..state.segment import RemoteSegment, SegmentState
from .leases import lease_on
from .orders import delete_before, gives_up_remote, is_forced, reason_of, waiting_order
from .reasons import Reason, Why, lasting
from .trim import doubt_of, doubt_of_orders

KEEPS_ALL = TopicRetention(UNLIMITED, UNLIMITED, UNLIMITED, UNLIMITED)
NEVER = TimestampMs(-1)

LANDING_MS = 15 * 60_000
"""How long (ms) an abandoned write may still land. Objects of a failed attempt are removed only after that."""


@dataclass(frozen=True, slots=True)
class AdvanceLogStart:
    """The decision to move the log start to ``log_start``. ``reason`` is written into the fact."""

    log_start: Offset
    reason: str


def is_ordered(advance: AdvanceLogStart) -> bool:
    """Return whether a person ordered the new log start, so that it does not depend on the age of the records."""
    return advance.reason.startswith(DeleteReason.OPERATOR_ORDER)


@dataclass(frozen=True, slots=True)
class StartDelete:
    """The decision to condemn ``segment``: it is no longer readable, and its objects are deleted after the grace."""

    segment: SegmentMeaning
    reason: DeleteReason


@dataclass(frozen=True, slots=True)
class RemoveObjects:
    """The decision to delete the objects of the condemned ``segment``, because nothing keeps them."""

    segment: SegmentMeaning


def next_log_start(
    view: PartitionView,
    bounds: LocalBounds,
    segments: Sequence[LocalSegment],
    retention: TopicRetention,
    now: TimestampMs,
    gone: Aged | None = None,
) -> AdvanceLogStart | Why:
    """Return the next log start: of an order at its exact offset, else by time, else by size at the end of a segment.

    ``segments``: the broker's, ascending, with the active one. ``gone``: the age of the records that the broker no
    longer has. Each fact has one reason, so two reasons need two facts.
    """
    if (doubt := doubt_of_orders(view)) is not None:
        return doubt
    assert view.log_start is not None
    ordered = delete_before(view, bounds.high_watermark)
    if ordered is not None and ordered[0] > view.log_start:
        return AdvanceLogStart(ordered[0], reason_of(ordered[1]))
    given_up = gives_up_remote(view)
    if given_up is not None and bounds.local_start > view.log_start:
        return AdvanceLogStart(bounds.local_start, reason_of(given_up))
    if (doubt := doubt_of(view)) is not None:
        return doubt
    log = WholeLog(view.coverage, segments, view.log_start, bounds.local_start, bounds.high_watermark)
    end = time_retention_end(log, retention, now)
    if end is not None:
        return AdvanceLogStart(end, DeleteReason.RETENTION_TIME.value)
    if gone is not None and _expired_uncopied(view, bounds, retention, now, gone):
        lost = OffsetRange(view.log_start, Offset(gone.before - 1))
        text = f"{DeleteReason.RETENTION_TIME.value} of offsets {lost}, which left the broker before they were copied"
        return AdvanceLogStart(gone.before, text)
    end = size_retention_end(log, retention)
    if end is not None:
        return AdvanceLogStart(end, DeleteReason.RETENTION_SIZE.value)
    waiting = waiting_order(view, bounds.high_watermark)
    why = _why_all_stays(log, retention, now)
    return why if waiting is None else Why(waiting.kind, f"{waiting}; {why}")


def _expired_uncopied(
    view: PartitionView, bounds: LocalBounds, retention: TopicRetention, now: TimestampMs, gone: Aged
) -> bool:
    """Return whether everything from the log start up to ``gone.before`` is in no tier and older than the retention.

    The broker's log start does not decide this: if an operator or a shorter retention removed records, the log start
    passes them only when they would have expired. It never passes a readable segment, even one outside the lineage.
    """
    assert view.log_start is not None
    if not view.log_start < gone.before <= bounds.local_start or retention.total_ms < 0:
        return False
    if now - gone.newest <= retention.total_ms:
        return False
    return not any(
        segment.offsets.end >= view.log_start and segment.offsets.start < gone.before for segment in view.readable
    )


def _why_all_stays(log: WholeLog, retention: TopicRetention, now: TimestampMs) -> Why:
    first = next(log.remote(), None)
    if first is None:
        return Why(Reason.NOTHING_REMOTE, f"nothing is in the remote tier from the log start {log.log_start} on")
    beginning = max(log.log_start, log.local_start)
    if first.offsets.start > beginning:
        return Why(Reason.NOT_COPIED, f"offset {beginning} is not copied yet: nothing goes before it is known")
    age = now - counted_from(first.segment, now)
    parts = [f"retention keeps the oldest segment, {first.offsets}"]
    if retention.total_ms >= 0:
        parts.append(f"{lasting(age)} old of {lasting(retention.total_ms)}")
    if retention.total_bytes >= 0:
        parts.append(f"{log.size_bytes:,} bytes in both tiers of {retention.total_bytes:,}")
    return Why(Reason.RETENTION_KEEPS, ": ".join((parts[0], ", ".join(parts[1:]) or "without limits")))


def next_delete(
    view: PartitionView, retention: TopicRetention = KEEPS_ALL, now: TimestampMs = NEVER
) -> StartDelete | Why:
    """Return the oldest readable segment, in the lineage or not, that is expired or too old on any branch."""
    if (doubt := doubt_of(view)) is not None:
        return doubt
    highest = max((fact.log_start for fact in view.log_starts), default=0)
    for segment in view.readable:
        if segment.offsets.start >= highest:
            break  # the segments are in order of their starts
        if segment.segment_id in view.kept:
            continue
        if is_expired(view, segment):
            return StartDelete(view.segments[segment.segment_id], _reason(view, segment))
        if _left_behind(view, segment) and _given_up(view, segment, retention, now):
            return StartDelete(view.segments[segment.segment_id], DeleteReason.RETENTION_TIME)
    return Why(Reason.RETENTION_KEEPS, f"no segment ends below the log start {view.log_start}")


def may_go(view: PartitionView, segment: RemoteSegment, reason: DeleteReason) -> bool:
    """Return whether a segment may still be condemned. Called right before the fact is written."""
    aged = reason is DeleteReason.RETENTION_TIME and _left_behind(view, segment)
    return aged or is_expired(view, segment)


def is_expired(view: PartitionView, segment: RemoteSegment) -> bool:
    """Return whether a segment lies wholly below a log start that holds in its own lineage*.

    A log start of another branch does not expire it: its own branch may lead again, and its log relies on this copy.
    """
    return any(is_below(fact, segment) for fact in view.log_starts)


def _left_behind(view: PartitionView, segment: RemoteSegment) -> bool:
    """Return whether a segment is completely below the log start, even one of another branch."""
    return view.log_start is not None and segment.offsets.end < view.log_start


def _given_up(view: PartitionView, segment: RemoteSegment, retention: TopicRetention, now: TimestampMs) -> bool:
    """Return whether a segment may be deleted whichever branch leads. Otherwise those of a lost branch would stay."""
    aged = retention.total_ms >= 0 and now - counted_from(segment, now) > retention.total_ms
    return aged or gives_up_remote(view) is not None


def _reason(view: PartitionView, segment: RemoteSegment) -> DeleteReason:
    """Return the reason of the lowest live log start that has passed the segment; `LOG_START` if there is none."""
    passed = [fact for fact in view.log_starts if is_below(fact, segment)]
    first = min(passed, key=lambda fact: fact.log_start, default=None)
    word = "" if first is None else first.reason.partition(" ")[0]
    reasons = (DeleteReason.RETENTION_TIME, DeleteReason.RETENTION_SIZE, DeleteReason.OPERATOR_ORDER)
    return next((reason for reason in reasons if reason.value == word), DeleteReason.LOG_START)


def next_removal(
    view: PartitionView,
    now: TimestampMs,
    grace_ms: int,
    put_off: Collection[RemoteSegmentId] = (),
    archived_to: Position | None = None,
) -> RemoveObjects | Why:
    """Return the segment that was condemned first, by any term, among those that nothing keeps, or why there is none.

    ``put_off``: segments whose removal failed recently; they delay no other segment. ``archived_to``: positions below
    it are archived; None if no archive is kept.
    """
    if (doubt := doubt_of(view)) is not None:
        return doubt
    deleting = (each for each in view.unsettled if each.state is SegmentState.DELETE_SEGMENT_STARTED)
    condemned = [each for each in deleting if each.segment_id not in view.kept]
    condemned.sort(key=lambda each: each.deleting.position if each.deleting else -1)
    reasons = []
    for segment in condemned:
        obstacle = kept_because(view, segment, now, grace_ms)
        if obstacle is None and not is_recorded(segment, archived_to):
            obstacle = Why(Reason.NOT_ARCHIVED, "that it is to be deleted is not archived yet")
        if segment.segment_id in put_off:
            obstacle = Why(Reason.REMOVAL_FAILED, "its removal failed and is tried again later")
        if obstacle is None:
            return RemoveObjects(segment)
        reasons.append(Why(obstacle.kind, f"segment {segment.segment_id}: {obstacle}"))
    if not reasons:
        return Why(Reason.RETENTION_KEEPS, "no segment waits for its objects to be deleted")
    many = "1 condemned segment keeps its objects"
    if len(reasons) > 1:
        many = f"{len(reasons)} condemned segments keep their objects"
    return Why(reasons[0].kind, f"{many}; {reasons[0]}")


def is_recorded(segment: SegmentMeaning, archived_to: Position | None) -> bool:
    """Return whether the archive has the delete-started. Otherwise a recovery would treat the segment as lost."""
    return archived_to is None or segment.deleting is None or segment.deleting.position < archived_to


def kept_because(view: PartitionView, segment: SegmentMeaning, now: TimestampMs, grace_ms: int) -> Why | None:
    """Return the reason to keep the objects of a condemned segment; None if there is none."""
    deleting = segment.deleting
    if segment.segment_id in view.kept:
        return Why(Reason.CONTRADICTION, "its facts contradict each other, and a person keeps its objects")
    if segment.state is not SegmentState.DELETE_SEGMENT_STARTED or segment.subject is None or deleting is None:
        return Why(Reason.REMOVAL_FAILED, f"its state is {segment.state}")
    foreign = not_own(segment.subject)
    if foreign is not None:
        return Why(Reason.CONTRADICTION, f"nothing is deleted: {foreign}")
    assert isinstance(deleting.fact, SegmentDeleteStarted)
    failed = deleting.fact.reason is DeleteReason.FAILED_ATTEMPT
    remaining_ms = deleting.fact.at + (max(grace_ms, LANDING_MS) if failed else grace_ms) - now
    if remaining_ms > 0:
        if failed:
            return Why(Reason.LATE_WRITES, f"the grace for late writes ends in {lasting(remaining_ms)}")
        return Why(Reason.READERS_GRACE, f"the grace for readers ends in {lasting(remaining_ms)}")
    lease = lease_on(view, segment, now)
    if lease is not None and not is_forced(view, segment.subject.offsets.end):
        text = f"lease {lease.id} of {lease.holder} is on {lease.offsets}, until {moment(lease.expires_at)}"
        return Why(Reason.LEASED, text)
    return None


def future_segments(view: PartitionView, now: TimestampMs) -> int:
    """Return the number of readable segments with a record in the future. Their age counts from the copy."""
    return sum(segment.max_timestamp > now for segment in view.readable)


@dataclass(frozen=True, slots=True)
class Aged:
    """The age of the start of the log: no record below ``before`` (exclusive) has a timestamp above ``newest``."""

    before: Offset
    newest: TimestampMs


class LastSeen:
    """The observations of one partition: the age of records that the broker had and no longer has. Not thread-safe.

    Kafka's own retention deletes segments that were never rolled, and so never copied: in a topic with few writes, all
    of them. Then no tier has their offsets, and no remote segment follows that could expire. The age of the records is
    known only from observations in the same leader epoch: after another election, they may describe a lost branch.
    """

    def __init__(self) -> None:
        self._present: Aged | None = None
        self._departed: Aged | None = None
        self._epoch: LeaderEpoch | None = None

    def look(self, segments: Sequence[LocalSegment], bounds: LocalBounds, epoch: LeaderEpoch | None) -> Aged | None:
        """Record an observation. Return the age of the records that left the broker since earlier ones, or None.

        ``bounds`` were read before ``segments`` were listed. If ``epoch``, the last one of the broker's checkpoint, is
        new, all earlier observations are discarded.
        """
        if epoch != self._epoch:
            self._present = self._departed = None
            self._epoch = epoch
        if self._present is not None and bounds.local_start >= self._present.before:
            departed_newest = self._departed.newest if self._departed is not None else self._present.newest
            newest = max(departed_newest, self._present.newest)
            self._departed, self._present = replace(self._present, newest=newest), None
        whole = bool(segments) and segments[0].base_offset <= bounds.local_start  # else records were deleted in between
        if whole and bounds.high_watermark > bounds.local_start:
            self._present = Aged(bounds.high_watermark, LocalSegments.of(segments).newest)
        return self._departed
