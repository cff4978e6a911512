"""What a partition's live set means. This is the definition; `apply.py` is its incremental twin.

Pure and total: any live set has a meaning. Fencing is a function of the live set alone. A fact at position p, written
by term (E, Q, N), is **fenced** when

- a live `LeaderElected` of a higher term stands below p, or
- Q >= p (no term can have known its own position before), or
- the live `LeaderElected` at Q has another N;

otherwise it is **accepted**. The life of a segment, from its facts (first line that fits):

    accepted delete-finished                        DELETE_SEGMENT_FINISHED
    accepted delete-started                         DELETE_SEGMENT_STARTED
    accepted copy-finished                          COPY_SEGMENT_FINISHED     readable
    fenced copy-finished, or fenced copy-started    ABANDONED
    copy-started of a term that is not the highest  ABANDONED                 (its process ended without finishing)
    copy-started                                    COPY_SEGMENT_STARTED
    only fenced deletes                             DELETE_SEGMENT_FINISHED   (a late zombie after erasing)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from .coverage import Coverage
from .epochs import Lineage
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
from .offsets import Offset, Position
from .segment import CopyAttempt, RemoteSegment, SegmentState, Term

F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class SegmentMeaning:
    """One segment id as the live set has it. ``remote`` is the descriptor, once any fact carried it."""

    segment_id: RemoteSegmentId
    state: SegmentState
    attempt: CopyAttempt | None
    remote: RemoteSegment | None
    position: Position
    contradiction: str | None = None

    @property
    def subject(self) -> CopyAttempt | RemoteSegment | None:
        """The most that is known of it."""
        return self.remote or self.attempt


@dataclass(frozen=True, slots=True)
class PartitionView:
    """Everything observable of one partition. An empty live set means: nothing is tiered, nobody leads."""

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
        """Remote segments exist that the lineage in force cannot place: no trim, no expiry."""
        first = self.lineage.entries[0] if self.lineage.entries else None
        if not self.readable:
            return False
        return first is None or any(
            segment.leader_epochs.entries[-1].epoch < first.epoch and segment.offsets.end >= (self.log_start or 0)
            for segment in self.readable
        )

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
    """The live `LeaderElected` facts of a partition, by position."""

    by_position: Mapping[Position, LeaderElected]

    @classmethod
    def among(cls, facts: Iterable[LiveFact]) -> Leaders:
        return cls({live.position: live.fact for live in facts if isinstance(live.fact, LeaderElected)})

    @property
    def highest(self) -> tuple[Term, LeaderElected] | None:
        """The term in force: the highest (epoch, position)."""
        if not self.by_position:
            return None
        position, fact = max(self.by_position.items(), key=lambda item: (item[1].epoch, item[0]))
        return Term(fact.epoch, position, fact.id), fact

    def fences(self, position: Position, term: Term) -> bool:
        """Whether a fact at ``position`` by ``term`` is fenced."""
        if term.position >= position:
            return True
        at_term = self.by_position.get(term.position)
        if at_term is not None and (at_term.epoch, at_term.id) != (term.epoch, term.id):
            return True
        return any((leader.epoch, at) > term.order for at, leader in self.by_position.items() if at < position)


def is_fenced(live: LiveFact, leaders: Leaders) -> bool:
    """Facts by no term are never fenced."""
    term = term_of(live.fact)
    return term is not None and leaders.fences(live.position, term)


def segment_meaning(segment_id: RemoteSegmentId, facts: Iterable[LiveFact], leaders: Leaders) -> SegmentMeaning:
    """The table of the module docstring, for the facts of one segment id."""
    attempt: CopyAttempt | None = None
    remote: RemoteSegment | None = None
    started: LiveFact | None = None
    finished: LiveFact | None = None
    deletes: list[tuple[bool, LiveFact]] = []
    position = Position(-1)
    for live in facts:
        position = max(position, live.position)
        match live.fact:
            case SegmentCopyStarted(attempt=attempt):
                started = live
            case SegmentCopyFinished(segment=remote):
                finished = live
            case SegmentDeleteStarted(subject=subject) | SegmentDeleteFinished(subject=subject):
                deletes.append((is_fenced(live, leaders), live))
                if isinstance(subject, RemoteSegment):
                    remote = remote or subject
                else:
                    attempt = attempt or subject
            case _:
                continue
    accepted = [live for fenced, live in deletes if not fenced]
    finish_accepted = finished is not None and not is_fenced(finished, leaders)
    contradiction = None
    if any(isinstance(live.fact, SegmentDeleteFinished) for live in accepted):
        state = SegmentState.DELETE_SEGMENT_FINISHED
    elif accepted:
        state = SegmentState.DELETE_SEGMENT_STARTED
    elif finish_accepted:
        state = SegmentState.COPY_SEGMENT_FINISHED
    elif finished is not None:
        state = SegmentState.ABANDONED
    elif started is not None:
        state = _unfinished(started, leaders)
    else:
        state = SegmentState.DELETE_SEGMENT_FINISHED
    if finish_accepted and finished is not None:
        earlier = [live for live in accepted if live.position < finished.position]
        if earlier:
            contradiction = f"{finished.key} at {finished.position} after {earlier[0].key} at {earlier[0].position}"
        elif started is None:
            contradiction = f"{finished.key} at {finished.position} without its copy-started"
    return SegmentMeaning(segment_id, state, attempt, remote, position, contradiction)


def _unfinished(started: LiveFact, leaders: Leaders) -> SegmentState:
    term, highest = term_of(started.fact), leaders.highest
    if highest is None or is_fenced(started, leaders) or highest[0] != term:
        return SegmentState.ABANDONED
    return SegmentState.COPY_SEGMENT_STARTED


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
    by_segment: dict[RemoteSegmentId, list[LiveFact]] = {}
    for live in facts:
        segment_id = segment_id_of(live)
        if segment_id is not None:
            by_segment.setdefault(segment_id, []).append(live)
    segments = {sid: segment_meaning(sid, of_segment, leaders) for sid, of_segment in by_segment.items()}
    return assemble(partition, facts, leaders, segments)


def assemble(
    partition: TopicIdPartition,
    facts: Iterable[LiveFact],
    leaders: Leaders,
    segments: Mapping[RemoteSegmentId, SegmentMeaning],
) -> PartitionView:
    """The view, from facts in order of position and the meaning of each segment."""
    facts = list(facts)
    accepted = [live for live in facts if not is_fenced(live, leaders)]
    finished = (s.remote for s in segments.values() if s.state is SegmentState.COPY_SEGMENT_FINISHED)
    readable = tuple(sorted((s for s in finished if s), key=lambda s: (s.offsets, s.segment_id)))
    highest = leaders.highest
    term, leader = highest or (None, None)
    log_starts = [f.log_start for f in _of(accepted, LogStartAdvanced)]
    trims = _of(accepted, LocalTrimIntended)
    deleted = _of(accepted, PartitionDeleted)
    return PartitionView(
        partition=partition,
        topic=leader.topic if leader else (readable[-1].topic if readable else None),
        leader=leader,
        term=term,
        segments=dict(segments),
        readable=readable,
        coverage=Coverage(readable, leader.lineage if leader else Lineage()),
        log_start=max(log_starts) if log_starts else None,
        trim_intended=trims[-1].offset if trims else None,
        orders=tuple(_of(facts, OperatorOrder)),
        leases=tuple(_of(facts, ReaderLease)),
        holds=tuple(_of(facts, IntegrityHold)),
        missing=tuple(_of(facts, PartitionMissing)),
        deleted=deleted[-1] if deleted else None,
        fenced=frozenset(live.key for live in facts if is_fenced(live, leaders)),
        degraded=tuple(
            f"{live.fact.reason}. position={live.position} key={live.key}"
            for live in facts
            if isinstance(live.fact, UnknownFact)
        ),
        contradictions=tuple(sorted(s.contradiction for s in segments.values() if s.contradiction)),
    )


def _of(facts: Iterable[LiveFact], kind: type[F]) -> list[F]:
    return [live.fact for live in facts if isinstance(live.fact, kind)]
