"""Expire the remote tier, one irreversible step at a time: `rules/expire.py` decides, and this module checks again.

Before every step the view as of now is checked; only a proof of leadership and short checks come between the two.
Rules marked * are in `docs/tier-state.md`.
"""

from __future__ import annotations

from collections.abc import Callable

from ..rules.decide import paused
from ..rules.expire import AdvanceLogStart, is_ordered, kept_because, may_go
from ..rules.orders import CutLocal, next_cut, reasons_standing
from ..rules.reasons import Why
from ..rules.sweep import only_copy, was_abandoned
from ..rules.trim import doubt_of, doubt_of_orders
from ..runtime.listener import Listener, LocalTrimmed, LogStartMoved, SegmentDeleteBegan, SegmentDeleted
from ..runtime.operation import Operation
from ..state.errors import Fenced, ObjectNotFound, StorageUnavailable, TimedOut
from ..state.facts import DeleteReason, SegmentDeleteFinished, SegmentDeleteStarted
from ..state.object_keys import ObjectKind, object_key, require_own
from ..state.offsets import Offset
from ..state.partition_view import PartitionView, SegmentMeaning
from ..state.segment import CopyAttempt, RemoteSegment, SegmentState
from ..storage.object_store import ObjectReader, ObjectStore
from ..storage.segment.writer import delete_segment
from .quarantine import NO_QUARANTINE, Quarantine
from .term import TermSession
from .trimmer import DELETE_RECORDS_TIMEOUT_S


def trusted_view(session: TermSession, doubts: Callable[[PartitionView], Why | None] | None = None) -> PartitionView:
    """Return the view as of now. Raises Fenced if it shows a pause or something that a person must resolve.

    ``doubts`` replaces `doubt_of`. Also raises ViewBehind.
    """
    view = session.view(max_age=0)
    doubt = (doubts or doubt_of)(view) or paused(view)
    if doubt is not None:
        raise Fenced(doubt.text, topic=session.name, partition=session.partition)
    return view


def last_look(session: TermSession, doubts: Callable[[PartitionView], Why | None] | None = None) -> PartitionView:
    """Check that the tier-state topic is safe, then return `trusted_view`. Called before irreversible steps."""
    session.require_safe_topic()
    return trusted_view(session, doubts)


def advance_log_start(session: TermSession, log_start: Offset, reason: str, listener: Listener) -> Operation[None]:
    """Append a log start, below which readers get nothing. Raises Fenced if it must not be appended after all."""
    yield "append log-start"
    ordered = is_ordered(AdvanceLogStart(log_start, reason))
    view = last_look(session, doubt_of_orders if ordered else None)
    if ordered and reason not in reasons_standing(view):
        raise Fenced("the order was taken back", topic=session.name, partition=session.partition, reason=reason)
    session.confirm_leadership()
    if not ordered:
        session.time_of_deletion()
    high_watermark = session.bounds().high_watermark
    if log_start > high_watermark:
        raise Fenced(
            "the log ends below this log start",
            topic=session.name,
            partition=session.partition,
            high_watermark=high_watermark,
        )
    if view.log_start is not None and view.log_start >= log_start:
        return
    # an order applies to every log: otherwise segments outside every known lineage would never be removed
    whatever_log = ordered and view.leaves_unplaced(view.lineage)
    session.append(session.log_start(view, log_start, reason, whatever_log=whatever_log))
    listener(LogStartMoved(session.partition, session.name, log_start, reason))


def start_delete(
    session: TermSession, segment: SegmentMeaning, reason: DeleteReason, listener: Listener
) -> Operation[None]:
    """Mark an expired segment, or with reason ABANDONED or FAILED_ATTEMPT that of an ended attempt, for deletion.

    Raises Fenced if the segment must stay, and CorruptData if the facts name objects of another segment*.
    """
    yield "append delete-started"
    view = last_look(session)
    subject = _condemned(view, session, segment, reason)
    if subject is None:
        raise Fenced(
            "the segment is not to be deleted any more",
            topic=session.name,
            partition=session.partition,
            segment_id=segment.segment_id,
        )
    require_own(subject)
    session.append(SegmentDeleteStarted(subject, session.term, session.counter(), reason, session.time_of_deletion()))
    listener(SegmentDeleteBegan(session.partition, session.name, segment.segment_id, subject.offsets, reason.value))


def _condemned(
    view: PartitionView, session: TermSession, segment: SegmentMeaning, reason: DeleteReason
) -> CopyAttempt | RemoteSegment | None:
    current = view.segments.get(segment.segment_id)
    if current is None or current.subject is None or segment.segment_id in view.kept:
        return None
    if reason is DeleteReason.FAILED_ATTEMPT:
        attempt = current.attempt if current.state is SegmentState.COPY_SEGMENT_STARTED else None
        own = attempt is not None and attempt.term == session.term
        return attempt if own and only_copy(view, current, session.bounds()) is None else None
    if reason is DeleteReason.ABANDONED:
        swept = current.state is SegmentState.ABANDONED and only_copy(view, current, session.bounds()) is None
        return current.subject if swept else None
    readable = current.state is SegmentState.COPY_SEGMENT_FINISHED and current.remote is not None
    return current.remote if readable and current.remote and may_go(view, current.remote, reason) else None


def remove_objects(
    session: TermSession,
    store: ObjectStore,
    segment: SegmentMeaning,
    grace_ms: int,
    listener: Listener,
    quarantine: Quarantine = NO_QUARANTINE,
) -> Operation[None]:
    """Delete the objects of a segment that any term marked for deletion. Check this, then append delete-finished.

    Objects of an abandoned segment are first copied to the quarantine, if there is one: they may be the only copy.

    Raises Fenced if something keeps the objects, and the store's AccessDenied and Unavailable kinds.
    """
    yield "delete objects"
    if quarantine and segment.subject is not None and was_abandoned(segment):
        quarantine.keep_segment(store, segment.subject)  # may take long: everything is checked after it
    view = last_look(session)
    current = view.segments.get(segment.segment_id)
    why = (
        "the segment is erased"
        if current is None
        else kept_because(view, current, session.time_of_deletion(), grace_ms)
    )
    if current is None or current.subject is None or why is not None:
        raise Fenced(
            "the objects stay",
            topic=session.name,
            partition=session.partition,
            segment_id=segment.segment_id,
            because=why,
        )
    subject = current.subject
    session.confirm_leadership()
    delete_segment(store, subject)
    check_gone(store, subject.object_key)
    yield "append delete-finished"
    session.append(SegmentDeleteFinished(subject, session.term, session.counter(), session.now()))
    size = subject.object_bytes if isinstance(subject, RemoteSegment) else 0
    listener(SegmentDeleted(session.partition, session.name, segment.segment_id, subject.offsets, size))


def check_gone(store: ObjectReader, base_key: str) -> None:
    """Check that none of a segment's three objects exists. Raises StorageUnavailable naming the one that does."""
    for kind in ObjectKind:
        key = object_key(base_key, kind)
        try:
            store.head(key)
        except ObjectNotFound:
            continue
        raise StorageUnavailable("object is still there after it was deleted", object_key=key)


def delete_records_order(session: TermSession, before: Offset, listener: Listener) -> Operation[Offset]:
    """Cut the broker's log below ``before`` for an order whose log start was accepted. Return the new log start.

    The request goes to this agent's own broker, without retries, right after the last checks, as in `trimmer.py` and
    for the same reasons. No remote segments replace the records that are cut: the order discards them.
    """
    context, partition = session.context, session.partition
    yield "delete-records"
    cut = next_cut(last_look(session, doubt_of_orders), session.bounds())
    if cut != CutLocal(before):
        raise Fenced("no order asks for this cut any more", partition=partition, before=before, now=cut)
    session.confirm_leadership()
    try:
        new_start = context.broker.delete_records_on(
            session.broker_id, session.name, partition.partition, before, DELETE_RECORDS_TIMEOUT_S
        )
    except TimedOut:
        new_start = session.bounds().local_start  # the broker may have cut all the same: read its log start
        if new_start < before:
            raise
    listener(LocalTrimmed(partition, session.name, new_start))
    return new_start
