"""What a partition's live set means. This is the definition; `apply.py` is its incremental twin.

Pure and total: any live set has a meaning. Fencing is a function of the live set alone. A fact at position p, written
by term (E, Q, N), is **fenced** when

- a live `LeaderElected` of a higher term stands below p, or
- Q >= p (no term can have known its own position before), or
- the live `LeaderElected` at Q has another N;

otherwise it is **accepted**. The key and the position of a `LeaderElected` say all that fencing needs, so one whose
value this version cannot read fences like any other. The life of a segment, from its facts (first line that fits):

    accepted delete-finished                        DELETE_SEGMENT_FINISHED
    accepted delete-started                         DELETE_SEGMENT_STARTED
    accepted copy-finished                          COPY_SEGMENT_FINISHED     readable
    fenced copy-finished, or fenced copy-started    ABANDONED
    copy-started of a term that is not the highest  ABANDONED                 (its process ended without finishing)
    copy-started                                    COPY_SEGMENT_STARTED
    only fenced deletes                             DELETE_SEGMENT_FINISHED   (a late zombie after erasing)

Illegal among accepted facts, hence a *contradiction*: a copy-finished without its copy-started, before it, of another
attempt than it, or after a delete-started; a delete-finished without a delete-started while a copy fact lives.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeVar

from .coverage import Coverage
from .epochs import LeaderEpoch, Lineage
from .errors import InvalidRequest
from .facts import (
    IntegrityHold,
    LeaderElected,
    LiveFact,
    LocalTrimIntended,
    LogStartAdvanced,
    OperatorOrder,
    PartitionDeleted,
    PartitionMissing,
    ReaderLease,
    SegmentCopyFinished,
    SegmentCopyStarted,
    SegmentDeleteFinished,
    SegmentDeleteStarted,
    UnknownFact,
    term_of,
)
from .ids import RemoteSegmentId, TopicIdPartition
from .keys import KeyKind, parse_key
from .offsets import Offset, Position
from .segment import CopyAttempt, RemoteSegment, SegmentState, Term

F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class SegmentMeaning:
    """One segment id as the live set has it. ``remote`` is the descriptor, once any fact carried it.

    ``position`` is that of its newest fact; ``fenced`` are the keys of its fenced facts.
    """

    segment_id: RemoteSegmentId
    state: SegmentState
    attempt: CopyAttempt | None
    remote: RemoteSegment | None
    position: Position
    contradiction: str | None = None
    fenced: tuple[str, ...] = ()

    @property
    def subject(self) -> CopyAttempt | RemoteSegment | None:
        """The most that is known of it."""
        return self.remote or self.attempt


@dataclass(frozen=True, slots=True)
class PartitionView:
    """Everything observable of one partition. An empty live set means: nothing is tiered, nobody leads.

    ``term`` is the one in force; ``leader`` the highest `LeaderElected` that this version can read.
    """

    partition: TopicIdPartition
    topic: str | None = None
    leader: LeaderElected | None = None
    term: Term | None = None
    segments: Mapping[RemoteSegmentId, SegmentMeaning] = field(default_factory=dict)
    readable: tuple[RemoteSegment, ...] = ()
    coverage: Coverage = field(default_factory=lambda: Coverage((), Lineage()))
    log_start: Offset | None = None
    trim_intended: Offset | None = None
    orders: tuple[OperatorOrder, ...] = ()
    leases: tuple[ReaderLease, ...] = ()
    holds: tuple[IntegrityHold, ...] = ()
    missing: tuple[PartitionMissing, ...] = ()
    deleted: PartitionDeleted | None = None
    fenced: frozenset[str] = frozenset()
    degraded: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()

    @property
    def lineage(self) -> Lineage:
        """The logical lineage of the term in force."""
        return self.leader.lineage if self.leader else Lineage()

    @property
    def lineage_unknown(self) -> bool:
        """Remote offsets at or above the log start lie below the lineage in force, in epochs older than its first.

        Nothing says whether they belong to this log: no trim, no expiry.
        """
        if not self.lineage.entries:
            return bool(self.readable)
        first = self.lineage.entries[0]
        for segment in self.readable:
            older = [entry for entry in segment.leader_epochs.entries if entry.epoch < first.epoch]
            if not older or segment.offsets.start >= first.start_offset:
                continue
            newer = segment.leader_epochs.entries[len(older) :]
            end = newer[0].start_offset - 1 if newer else segment.offsets.end
            if min(end, first.start_offset - 1) >= (self.log_start or 0):
                return True
        return False

    @property
    def copied_to(self) -> Offset:
        """Highest offset in remote storage reached without a gap from the log start; start - 1 when none."""
        return self.coverage.prefix_end(self.log_start or 0)

    @property
    def remote_bytes(self) -> int:
        """What the store holds for readable segments."""
        return sum(segment.object_bytes for segment in self.readable)

    def in_state(self, state: SegmentState) -> list[SegmentMeaning]:
        return [segment for segment in self.segments.values() if segment.state is state]


@dataclass(frozen=True, slots=True)
class Leaders:
    """The live `LeaderElected` facts of a partition.

    ``terms`` begin there, by position; ``highest_to[i]`` is the highest of the first i + 1. ``leader`` is the highest
    of the facts that this version can read.
    """

    terms: Mapping[Position, Term]
    positions: tuple[Position, ...]
    highest_to: tuple[Term, ...]
    leader: LeaderElected | None

    @classmethod
    def among(cls, facts: Iterable[LiveFact]) -> Leaders:
        begun = [(term, live.fact) for live in facts if (term := term_begun(live)) is not None]
        begun.sort(key=lambda each: each[0].position)
        readable = [(term.order, fact) for term, fact in begun if isinstance(fact, LeaderElected)]
        return cls(
            terms={term.position: term for term, _ in begun},
            positions=tuple(term.position for term, _ in begun),
            highest_to=tuple(accumulate((term for term, _ in begun), _higher)),
            leader=max(readable, key=lambda each: each[0])[1] if readable else None,
        )

    @property
    def highest(self) -> Term | None:
        """The term in force: the highest (epoch, position)."""
        return self.highest_to[-1] if self.highest_to else None

    def fences(self, position: Position, term: Term) -> bool:
        """Whether a fact at ``position`` by ``term`` is fenced."""
        if term.position >= position:
            return True
        if self.terms.get(term.position, term) != term:
            return True
        below = bisect_left(self.positions, position)
        return below > 0 and self.highest_to[below - 1].order > term.order


def _higher(one: Term, other: Term) -> Term:
    return max(one, other, key=lambda term: term.order)


def term_begun(live: LiveFact) -> Term | None:
    """The term that begins with this fact, from its key alone where the value cannot be read."""
    if isinstance(live.fact, LeaderElected):
        return Term(live.fact.epoch, live.position, live.fact.id)
    if not isinstance(live.fact, UnknownFact):
        return None
    try:
        key = parse_key(live.key)
    except InvalidRequest:
        return None
    if key is None or key.kind is not KeyKind.LEADER or key.id is None:
        return None
    return Term(LeaderEpoch(key.numbers[0]), live.position, key.id)


def is_fenced(live: LiveFact, leaders: Leaders) -> bool:
    """Facts by no term are never fenced."""
    term = term_of(live.fact)
    return term is not None and leaders.fences(live.position, term)


def segment_meaning(segment_id: RemoteSegmentId, facts: Iterable[LiveFact], leaders: Leaders) -> SegmentMeaning:
    """The table of the module docstring, for the facts of one segment id in order of position."""
    attempt: CopyAttempt | None = None
    remote: RemoteSegment | None = None
    started: LiveFact | None = None
    finished: LiveFact | None = None
    deletes: list[LiveFact] = []
    fenced: list[str] = []
    position = Position(-1)
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
    if any(isinstance(live.fact, SegmentDeleteFinished) for live in accepted):
        state = SegmentState.DELETE_SEGMENT_FINISHED
    elif accepted:
        state = SegmentState.DELETE_SEGMENT_STARTED
    elif finished is not None:
        state = SegmentState.ABANDONED if finished.key in fenced else SegmentState.COPY_SEGMENT_FINISHED
    elif started is not None:
        ended = started.key in fenced or leaders.highest != term_of(started.fact)
        state = SegmentState.ABANDONED if ended else SegmentState.COPY_SEGMENT_STARTED
    else:
        state = SegmentState.DELETE_SEGMENT_FINISHED
    copies = [live for live in (started, finished) if live is not None and live.key not in fenced]
    contradiction = _contradiction(copies, accepted, started)
    return SegmentMeaning(segment_id, state, attempt, remote, position, contradiction, tuple(fenced))


def _contradiction(copies: list[LiveFact], deletes: list[LiveFact], started: LiveFact | None) -> str | None:
    """What is illegal among the accepted facts of a segment; ``started`` is its copy-started, fenced or not."""
    begun = next((live for live in deletes if isinstance(live.fact, SegmentDeleteStarted)), None)
    if deletes and begun is None and copies:
        return f"{_at(deletes[0])} without a delete-started, but {_at(copies[0])} lives"
    finished = next((live for live in copies if isinstance(live.fact, SegmentCopyFinished)), None)
    if finished is None or not isinstance(finished.fact, SegmentCopyFinished):
        return None
    if deletes and deletes[0].position < finished.position:
        return f"{_at(finished)} after {_at(deletes[0])}"
    if started is None or not isinstance(started.fact, SegmentCopyStarted):
        return f"{_at(finished)} without its copy-started"
    if finished.position < started.position:
        return f"{_at(finished)} before {_at(started)}"
    attempt, segment = started.fact.attempt, finished.fact.segment
    said = (attempt.term, attempt.offsets, attempt.object_key)
    if said != (segment.term, segment.offsets, segment.object_key):
        return f"{_at(finished)} is not what {_at(started)} began"
    return None


def _at(live: LiveFact) -> str:
    return f"{live.key} at {live.position}"


def segment_id_of(live: LiveFact) -> RemoteSegmentId | None:
    """The segment a fact is about; None for facts about the partition."""
    match live.fact:
        case SegmentCopyStarted(attempt=attempt):
            return attempt.segment_id
        case SegmentCopyFinished(segment=segment):
            return segment.segment_id
        case SegmentDeleteStarted(subject=subject) | SegmentDeleteFinished(subject=subject):
            return subject.segment_id
        case _:
            return None


def meaning(partition: TopicIdPartition, live_set: Iterable[LiveFact]) -> PartitionView:
    """The definition: a live set of one partition, in any order, to its view."""
    facts = sorted(live_set, key=lambda live: live.position)
    leaders = Leaders.among(facts)
    others: list[LiveFact] = []
    by_segment: dict[RemoteSegmentId, list[LiveFact]] = {}
    for live in facts:
        segment_id = segment_id_of(live)
        if segment_id is None:
            others.append(live)
        else:
            by_segment.setdefault(segment_id, []).append(live)
    segments = {sid: segment_meaning(sid, of_segment, leaders) for sid, of_segment in by_segment.items()}
    return assemble(partition, others, leaders, segments)


def assemble(
    partition: TopicIdPartition,
    others: list[LiveFact],
    leaders: Leaders,
    segments: Mapping[RemoteSegmentId, SegmentMeaning],
    known: Coverage | None = None,
) -> PartitionView:
    """The view, from the facts about no segment in order of position and the meaning of each segment.

    ``known``: an earlier coverage of this partition, kept when the same segments are readable in the same lineage.
    """
    fenced = {live.key for live in others if is_fenced(live, leaders)}
    accepted = [live for live in others if live.key not in fenced]
    fenced.update(key for segment in segments.values() for key in segment.fenced)
    finished = (s.remote for s in segments.values() if s.state is SegmentState.COPY_SEGMENT_FINISHED)
    readable = tuple(sorted((s for s in finished if s), key=lambda s: (s.offsets.start, s.offsets.end, s.segment_id)))
    lineage = leaders.leader.lineage if leaders.leader else Lineage()
    if known is None or known.segments != readable or known.lineage != lineage:
        known = Coverage(readable, lineage)
    log_starts = [f.log_start for f in _of(accepted, LogStartAdvanced)]
    trims = _of(accepted, LocalTrimIntended)
    deleted = _of(accepted, PartitionDeleted)
    return PartitionView(
        partition=partition,
        topic=leaders.leader.topic if leaders.leader else (readable[-1].topic if readable else None),
        leader=leaders.leader,
        term=leaders.highest,
        segments=dict(segments),
        readable=readable,
        coverage=known,
        log_start=max(log_starts) if log_starts else None,
        trim_intended=trims[-1].offset if trims else None,
        orders=tuple(_of(others, OperatorOrder)),
        leases=tuple(_of(others, ReaderLease)),
        holds=tuple(_of(others, IntegrityHold)),
        missing=tuple(_of(others, PartitionMissing)),
        deleted=deleted[-1] if deleted else None,
        fenced=frozenset(fenced),
        degraded=tuple(
            f"{live.fact.reason}. position={live.position} key={live.key}"
            for live in others
            if isinstance(live.fact, UnknownFact)
        ),
        contradictions=tuple(sorted(s.contradiction for s in segments.values() if s.contradiction)),
    )


def _of(facts: Iterable[LiveFact], kind: type[F]) -> list[F]:
    return [live.fact for live in facts if isinstance(live.fact, kind)]
