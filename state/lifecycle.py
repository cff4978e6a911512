"""The life of a segment, from the facts about it. The first line that applies decides:

    accepted delete-finished                        DELETE_SEGMENT_FINISHED
    accepted delete-started                         DELETE_SEGMENT_STARTED
    accepted copy-finished of its copy-started      COPY_SEGMENT_FINISHED     readable, where the objects are its own
    any other copy-finished, fenced copy-started    ABANDONED
    copy-started of a term that is not the highest  ABANDONED                 (its process ended without finishing)
    copy-started                                    COPY_SEGMENT_STARTED
    only fenced deletes                             DELETE_SEGMENT_FINISHED   (a late zombie after erasing)

Some facts are illegal and therefore a *contradiction*. Among accepted facts:
- a copy-finished without a copy-started of the same attempt, or a copy-finished after a delete;
- a delete-finished without a delete-started while a copy fact is live.
A fact that names objects of another segment (`object_keys.py`) is a contradiction even if it is fenced: no agent writes
such a fact, and fenced segments are swept. A person may settle a contradiction: then this table applies, and the
segment's objects are deleted by it or kept forever.
A copy-finished that does not match its copy-started is never readable. Erasing removes the copy-finished first. So if
only the copy-finished exists, it was appended again after the deletion, or another program erased the copy-started.
"""

from __future__ import annotations

from collections.abc import Iterable

from .errors import InvalidRequest
from .facts import (
    ContradictionSettled,
    LiveFact,
    SegmentCopyFinished,
    SegmentCopyStarted,
    SegmentDeleteFinished,
    SegmentDeleteStarted,
    term_of,
)
from .fencing import Leaders, is_fenced
from .ids import RemoteSegmentId
from .keys import parse_key
from .object_keys import not_own
from .offsets import Position
from .partition_view import SegmentMeaning
from .segment import CopyAttempt, RemoteSegment, SegmentState


def subject_of(live: LiveFact) -> CopyAttempt | RemoteSegment | None:
    """Return the attempt or segment that a fact describes, or None for facts about the partition."""
    match live.fact:
        case SegmentCopyStarted(attempt=attempt):
            return attempt
        case SegmentCopyFinished(segment=segment):
            return segment
        case SegmentDeleteStarted(subject=subject) | SegmentDeleteFinished(subject=subject):
            return subject
        case _:
            return None


def segment_id_of(live: LiveFact) -> RemoteSegmentId | None:
    """Return the id of the segment that a fact is about, or None for facts about the partition."""
    subject = subject_of(live)
    return None if subject is None else subject.segment_id


def segment_meaning(segment_id: RemoteSegmentId, facts: Iterable[LiveFact], leaders: Leaders) -> SegmentMeaning:
    """Return the meaning of one segment id, by the table of the module docstring. ``facts``: in order of position."""
    attempt: CopyAttempt | None = None
    remote: RemoteSegment | None = None
    started: LiveFact | None = None
    finished: LiveFact | None = None
    deletes: list[LiveFact] = []
    fenced: list[str] = []
    position = Position(-1)
    facts = tuple(facts)
    for live in facts:
        position = max(position, live.position)
        if is_fenced(live, leaders):
            fenced.append(live.key)
        match live.fact:
            case SegmentCopyStarted(attempt=attempt):
                started = live
            case SegmentCopyFinished(segment=remote):
                finished = live
            case SegmentDeleteStarted(subject=subject) | SegmentDeleteFinished(subject=subject):
                deletes.append(live)
                if isinstance(subject, RemoteSegment):
                    remote = remote or subject
                else:
                    attempt = attempt or subject
            case _:
                continue
    accepted = [live for live in deletes if live.key not in fenced]
    mismatch = _mismatch(started, finished) if finished is not None else None
    if accepted:
        deleted = any(isinstance(live.fact, SegmentDeleteFinished) for live in accepted)
        state = SegmentState.DELETE_SEGMENT_FINISHED if deleted else SegmentState.DELETE_SEGMENT_STARTED
    elif finished is not None:
        readable = finished.key not in fenced and mismatch is None and _foreign([finished]) is None
        state = SegmentState.COPY_SEGMENT_FINISHED if readable else SegmentState.ABANDONED
    elif started is not None:
        ended = started.key in fenced or leaders.highest != term_of(started.fact)
        state = SegmentState.ABANDONED if ended else SegmentState.COPY_SEGMENT_STARTED
    else:
        state = SegmentState.DELETE_SEGMENT_FINISHED
    contradiction, deleting = _foreign(facts), None
    if accepted or mismatch:  # otherwise nothing can be illegal, as in most segments of a replay
        copies = [live for live in (started, finished) if live is not None and live.key not in fenced]
        # the text has both contradictions, so a person cannot settle one without seeing the other
        contradiction = "; ".join(filter(None, (contradiction, _contradiction(copies, accepted, mismatch)))) or None
        deleting = next((live for live in accepted if isinstance(live.fact, SegmentDeleteStarted)), None)
    return SegmentMeaning(segment_id, state, attempt, remote, position, contradiction, tuple(fenced), deleting, facts)


def _foreign(facts: Iterable[LiveFact]) -> str | None:
    """Return a text about the first fact that names objects of another segment, or None if there is none."""
    for live in facts:
        subject = subject_of(live)
        why = None if subject is None else not_own(subject)
        if why is not None:
            return f"{_at(live)}: {why}"
    return None


def _contradiction(copies: list[LiveFact], deletes: list[LiveFact], mismatch: str | None) -> str | None:
    """Return a text about illegal accepted facts of a segment, or None. ``mismatch``: the result of `_mismatch`."""
    delete_started = next((live for live in deletes if isinstance(live.fact, SegmentDeleteStarted)), None)
    if deletes and delete_started is None and copies:
        return f"{_at(deletes[0])} without a delete-started, but {_at(copies[0])} lives"
    finished = next((live for live in copies if isinstance(live.fact, SegmentCopyFinished)), None)
    if finished is None or not isinstance(finished.fact, SegmentCopyFinished):
        return None
    if deletes and deletes[0].position < finished.position:
        return f"{_at(finished)} after {_at(deletes[0])}"
    return mismatch


def _mismatch(started: LiveFact | None, finished: LiveFact) -> str | None:
    """Return why a copy-finished does not match this copy-started, or None. The order of the two does not count."""
    if started is None or not isinstance(started.fact, SegmentCopyStarted):
        return f"{_at(finished)} without its copy-started"
    assert isinstance(finished.fact, SegmentCopyFinished)
    attempt, segment = started.fact.attempt, finished.fact.segment
    if (attempt.term, attempt.offsets, attempt.object_key) != (segment.term, segment.offsets, segment.object_key):
        return f"{_at(finished)} is not what {_at(started)} began"
    return None


def _at(live: LiveFact) -> str:
    return f"{live.key} at {live.position}"


def contradicted_segment(contradiction: str) -> RemoteSegmentId | None:
    """Return the segment of a contradiction, or None. The text begins with the key of a fact about that segment."""
    try:
        key = parse_key(contradiction.partition(" at ")[0])
    except InvalidRequest:
        return None
    return None if key is None else key.segment_id


def kept_segments(settled: Iterable[ContradictionSettled]) -> frozenset[RemoteSegmentId]:
    """Return the segments whose objects a person keeps. Only the segment id counts, not the rest of the contradiction:
    a fact that is appended again changes the text, and the objects must not be deleted because of that.
    """
    segment_ids = (contradicted_segment(fact.contradiction) for fact in settled if fact.keep)
    return frozenset(segment_id for segment_id in segment_ids if segment_id is not None)
