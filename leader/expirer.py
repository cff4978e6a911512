"""Expire the remote tier, one irreversible step at a time: `rules/expire.py` decides, and this module checks again.

Before every step the view as of now is checked; only a proof of leadership and short checks come between the two.
Rules marked * are in `docs/tier-state.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from ..rules.decide import paused
from ..rules.erase import Erase
from ..rules.expire import AdvanceLogStart, is_ordered, kept_because, may_go
from ..rules.orders import CutLocal, next_cut, reasons_standing
from ..rules.reasons import Why
from ..rules.sweep import only_copy, was_abandoned
from ..rules.trim import doubt_of, doubt_of_orders
from ..runtime.listener import FactsErased, Listener, LogStartMoved, SegmentDeleteBegan, SegmentDeleted
from ..runtime.operation import Operation
from ..state.errors import InvalidRequest, ObjectExists, ObjectNotFound, StorageUnavailable
from ..state.facts import DeleteReason, SegmentDeleteFinished, SegmentDeleteStarted
from ..state.object_keys import ObjectKind, object_key, require_own
from ..state.objects import ObjectInfo, checked_key
from ..state.offsets import ByteRange, Offset
from ..state.partition_view import PartitionView, SegmentMeaning
from ..state.segment import CopyAttempt, RemoteSegment, SegmentState
from ..storage.object_store import ObjectReader, ObjectStore
from ..storage.segment.writer import delete_segment
from .term import TermSession
from .trimmer import delete_records

SUFFIX = ".quarantined"


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Copies objects to a quarantine before a sweep deletes them. An empty ``prefix`` means no quarantine.

        <quarantine prefix><key>.<modified at, ms>.quarantined

    The suffix hides the copies from every listing of segments: recover, verify and the sweep ignore them. To restore an
    object, copy it to its original key with the store's own tools. tierstate never deletes objects in the quarantine:
    use a lifecycle rule of the bucket for the prefix. ``throttle`` is called with the size of each piece, as for
    copies.

    Raises InvalidRequest for a prefix that no key may have.
    """

    prefix: str = ""
    throttle: Callable[[int], object] = lambda size: None

    def __post_init__(self) -> None:
        checked_key(f"{self.prefix}x")
        if self.prefix.startswith("_tierstate"):
            raise InvalidRequest(
                "sweep.quarantine_prefix is reserved: archive and checkpoints", quarantine_prefix=repr(self.prefix)
            )

    def __bool__(self) -> bool:
        return bool(self.prefix)

    def key_of(self, info: ObjectInfo) -> str:
        """Return an object's key in the quarantine: the same at each try, another one for a later object at its key."""
        return f"{self.prefix}{info.key}.{info.modified_at}{SUFFIX}"

    def keep(self, store: ObjectStore, key: str) -> None:
        """Copy an object to the quarantine; the caller deletes the original. Raises ObjectNotFound.

        `ObjectStore` has no copy operation, so this process reads and writes every byte once. Memory: a few parts of
        the object. Raises StorageUnavailable if the copy has another size.
        """
        info = store.head(key)
        target = self.key_of(info)
        with suppress(ObjectExists):  # an earlier try wrote it, and died before the delete or got no answer
            store.put_stream(target, self._pieces(store, info))
        copy = store.head(target)
        if copy.size != info.size:
            raise StorageUnavailable(
                "quarantined object has another size",
                object_key=key,
                quarantined=target,
                bytes=copy.size,
                was=info.size,
            )

    def keep_segment(self, store: ObjectStore, segment: CopyAttempt | RemoteSegment) -> None:
        """Copy the segment's existing objects. Raises CorruptData if its facts name objects of another segment*."""
        require_own(segment)
        for kind in ObjectKind:
            with suppress(ObjectNotFound):
                self.keep(store, object_key(segment.object_key, kind))

    def _pieces(self, store: ObjectReader, info: ObjectInfo) -> Iterator[bytes]:
        if not info.size:
            return
        for piece in store.stream_range(info.key, ByteRange(0, info.size)):
            self.throttle(len(piece))
            yield piece


NO_QUARANTINE = Quarantine()


def trusted_view(session: TermSession, doubts: Callable[[PartitionView], Why | None] | None = None) -> PartitionView:
    """Return the view as of now. Raises Fenced if it shows a pause or something that a person must resolve.

    ``doubts`` replaces `doubt_of`. Also raises ViewBehind.
    """
    view = session.view(max_age=0)
    doubt = (doubts or doubt_of)(view) or paused(view)
    if doubt is not None:
        raise session.fenced(doubt.text)
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
        raise session.fenced("the order was taken back", reason=reason)
    session.confirm_leadership()
    if not ordered:
        session.time_of_deletion()
    high_watermark = session.bounds().high_watermark
    if log_start > high_watermark:
        raise session.fenced("the log ends below this log start", high_watermark=high_watermark)
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
        raise session.fenced("the segment is not to be deleted any more", segment_id=segment.segment_id)
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
        raise session.fenced("the objects stay", segment_id=segment.segment_id, because=why)
    session.confirm_leadership()
    yield from finish_delete(session, store, current.subject, listener)


def finish_delete(
    session: TermSession, store: ObjectStore, subject: CopyAttempt | RemoteSegment, listener: Listener
) -> Operation[None]:
    """Delete the objects, manifest first, check that none remains, and append delete-finished.

    Raises StorageUnavailable naming an object that still exists, and the store's errors.
    """
    delete_segment(store, subject)
    for kind in ObjectKind:
        key = object_key(subject.object_key, kind)
        with suppress(ObjectNotFound):
            store.head(key)
            raise StorageUnavailable("object is still there after it was deleted", object_key=key)
    yield "append delete-finished"
    session.append(SegmentDeleteFinished(subject, session.term, session.counter(), session.now()))
    size = subject.object_bytes if isinstance(subject, RemoteSegment) else 0
    listener(SegmentDeleted(session.partition, session.name, subject.segment_id, subject.offsets, size))


def delete_records_order(session: TermSession, before: Offset, listener: Listener) -> Operation[Offset]:
    """Cut the broker's log below ``before`` for an order whose log start was accepted. Return the new log start.

    The request goes to this agent's own broker, without retries, right after the last checks, as in `trimmer.py` and
    for the same reasons. No remote segments replace the records that are cut: the order discards them.
    """
    yield "delete-records"
    cut = next_cut(last_look(session, doubt_of_orders), session.bounds())
    if cut != CutLocal(before):
        raise session.fenced("no order asks for this cut any more", before=before, now=cut)
    session.confirm_leadership()
    return delete_records(session, before, listener)


def erase(session: TermSession, erasure: Erase, listener: Listener) -> Operation[None]:
    """Append the tombstones, each once the view has applied the one before. Before each, raises Fenced if the term
    ended or a person must resolve something first.
    """
    for key in erasure.keys:
        yield "append tombstone"
        last_look(session)
        session.erase(key)
    listener(FactsErased(session.partition, session.name, len(erasure.keys), erasure.why))
