"""Copy one rolled segment to the object store, and record it in facts.

    copy-started applied  →  log  →  indexes  →  manifest  →  checks  →  copy-finished   ← the commit point

If an attempt fails, it removes its objects, and its term appends delete-started. The next attempt has a new segment id.
If the process dies, its copy-started remains; the next term makes the segment ABANDONED, and it is swept later.
Rules marked * are in `docs/tier-state.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from ..log.local_log import SegmentFiles
from ..rules.candidates import CopyCandidate
from ..runtime.listener import Listener, SegmentCopied
from ..runtime.operation import Operation
from ..state.errors import Fenced, NotTiered, ObjectNotFound, StorageUnavailable, Throttled, TierstateError, TimedOut
from ..state.facts import (
    DeleteReason,
    SegmentCopyFinished,
    SegmentCopyStarted,
    SegmentDeleteFinished,
    SegmentDeleteStarted,
)
from ..state.ids import RemoteSegmentId
from ..state.object_keys import ObjectKeys
from ..state.segment import CopyAttempt, RemoteSegment
from ..storage.object_store import ObjectReader, ObjectStore, ObjectWriter
from ..storage.segment.writer import delete_segment
from .object_proof import ObjectProof
from .term import TermSession
from .upload import FormatPolicy, upload

MAGIC_AT = 16
"""The byte position of a batch's version (magic), the same in every version."""


@dataclass(frozen=True, slots=True)
class CopyTools:
    """The tools that every copy of this agent uses. ``throttle`` gets the size of each piece before it is sent.

    ``longest_s``: an attempt that takes longer aborts itself, long before a sweep could treat it as abandoned*.
    """

    store: ObjectStore
    proof: ObjectProof
    keys: ObjectKeys
    format: FormatPolicy
    throttle: Callable[[int], object]
    listener: Listener
    longest_s: float


def copy_segment(session: TermSession, candidate: CopyCandidate, tools: CopyTools) -> Operation[RemoteSegment]:
    """Make one attempt. Raises CorruptData (a check failed), NotTiered (old format), Fenced, Unavailable kinds.

    Every file is opened before the first fact is appended, so that reads succeed even if the broker deletes the segment
    during the attempt. `_check_again` then raises Fenced.
    """
    context = session.context
    start_s = context.clock.monotonic()

    def paced(size: int) -> None:
        tools.throttle(size)
        if context.clock.monotonic() - start_s > tools.longest_s:
            raise TimedOut("the copy took too long", offsets=candidate.offsets, seconds=tools.longest_s)

    with context.log.open_segment(session.partition, session.name, candidate.base_offset, candidate.next_base) as files:
        _check_format(files, candidate)
        attempt = _attempt(session, candidate, tools)
        _check_answers(tools.store, attempt)
        yield "append copy-started"
        session.append(SegmentCopyStarted(attempt))
        try:
            segment = yield from upload(session, attempt, files, tools.store, tools.format, paced, tools.listener)
            _check_again(session, candidate, files)
            paced(0)
        except Exception as error:  # copy-finished was never sent, so this attempt must remove its objects
            yield from _give_up(session, attempt, tools.store, error)
            raise
    yield "append copy-finished"
    # The commit point: once this is in the topic, readers everywhere may read the segment.
    session.append(SegmentCopyFinished(segment))
    tools.listener(
        SegmentCopied(
            session.partition,
            session.name,
            segment.segment_id,
            segment.offsets,
            segment.log_bytes,
            segment.object_bytes,
            context.clock.monotonic() - start_s,
        )
    )
    return segment


def _check_format(files: SegmentFiles, candidate: CopyCandidate) -> None:
    """Raise NotTiered if the first batch has a format older than v2. Old formats come first in a segment."""
    head = files.head()
    if len(head) > MAGIC_AT and head[MAGIC_AT] < 2:
        raise NotTiered(
            "message format older than v2", file=files.path, offsets=candidate.offsets, magic=head[MAGIC_AT]
        )


def _check_answers(store: ObjectReader, attempt: CopyAttempt) -> None:
    """Check that the store answers before the first fact is appended*. Raises the store's errors.

    Without this check, an outage of hours would leave two facts per attempt and partition: they cannot be erased before
    the store answers. Requests a key at which no object is ever written, because a store may cache "missing".
    """
    with suppress(ObjectNotFound):
        store.head(attempt.object_key)


def _attempt(session: TermSession, candidate: CopyCandidate, tools: CopyTools) -> CopyAttempt:
    segment_id = RemoteSegmentId.of(session.context.ids.uuid())
    key = tools.keys.base_key(
        session.name, session.partition.topic_id, session.partition.partition, candidate.base_offset, segment_id
    )
    return CopyAttempt(
        partition=session.partition,
        topic=session.name,
        segment_id=segment_id,
        offsets=candidate.offsets,
        object_key=key,
        term=session.term,
        broker_id=session.broker_id,
        started_at=session.now(),
    )


def _check_again(session: TermSession, candidate: CopyCandidate, files: SegmentFiles) -> None:
    """Check that leadership, epoch, topic id, last stable offset and directory are unchanged. Raises Fenced."""
    session.confirm_leadership()
    bounds = session.bounds()
    if candidate.next_base > bounds.last_stable_offset:
        raise Fenced(
            "the last stable offset went back", offsets=candidate.offsets, last_stable_offset=bounds.last_stable_offset
        )
    files.confirm()
    session.view(max_age=0)  # as of now: a fenced copy-finished would leave its objects to the sweeper


def _give_up(session: TermSession, attempt: CopyAttempt, store: ObjectWriter, error: Exception) -> Operation[None]:
    """Remove the attempt's objects and append the facts of that, as far as possible. Raises no tierstate error.

    The objects are removed first: no reader knows them, and a fenced term may still remove objects that it wrote.
    Delete-finished is appended only if no object can land later. A write of unknown outcome may land later, and then a
    sweep needs the facts that name the segment id.
    """
    gone = False
    yield "delete own objects"
    with suppress(TierstateError):
        delete_segment(store, attempt)
        gone = not isinstance(error, (StorageUnavailable, Throttled))
    with suppress(TierstateError):
        yield "append delete-started"
        reason, now = DeleteReason.FAILED_ATTEMPT, session.now()
        session.append(SegmentDeleteStarted(attempt, session.term, session.counter(), reason, now))
        if gone:
            yield "append delete-finished"
            session.append(SegmentDeleteFinished(attempt, session.term, session.counter(), session.now()))
