"""The custody of a partition whose topic was deleted. Pure: its view, evidence, a policy → a step, or a reason.

    its topic was deleted               append `PartitionMissing`                   `DeclareMissing`
    missing for `custodian.grace`       the terminal term, then `PartitionDeleted`  `EndPartition`
    ended: every segment                delete-started, objects, delete-finished    `CondemnSegment`, `RemoveCondemned`
    ended: every other key              tombstones, `PartitionMissing` last         `EraseFacts`
    its topic exists before the end     tombstones for `withdrawable` keys          `Withdraw`

All state is in the live set, so any process can continue where another one stopped. Rules (* prevents a loss):

- **The absence of the topic must be proven.** It is not if another cluster answers, if topics may be hidden from the
  caller, if one broker knows the id, or if too few brokers answer.
- **Only a topic that this cluster saw alive** can be missing: a `LeaderElected` of a real broker is live. A partition
  that `recover` wrote has none until its topic is mapped.
- **A `PartitionDeleted` counts only together with the terminal `LeaderElected` of its own term.** So a terminal term
  that did not end the partition can be withdrawn, and a late `PartitionDeleted` of that term has no effect.
- **The terminal `LeaderElected` and its `PartitionDeleted` stay forever***: they fence every late fact of an older
  term, which is then erased like all others. Without them, a copy that a zombie process finishes would become a
  readable segment of a partition without a leader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ..state.epochs import TERMINAL_EPOCH
from ..state.facts import LeaderElected, LiveFact, PartitionDeleted, PartitionMissing, SegmentDeleteStarted
from ..state.ids import BrokerId, RemoteSegmentId
from ..state.object_keys import not_own
from ..state.offsets import Position, TimestampMs
from ..state.partition_view import PartitionView, SegmentMeaning
from ..state.segment import SegmentState, Term
from .erase import in_erasing_order
from .expire import is_recorded
from .leases import lease_on


@dataclass(frozen=True, slots=True)
class CustodyPolicy:
    """Times in milliseconds. ``grace_ms``: how long a topic must be missing before its partitions end.
    ``reader_grace_ms``: how long the objects of a condemned segment are kept for readers.
    """

    grace_ms: int
    reader_grace_ms: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """The brokers' current answers about a topic. ``answers``: for each broker, whether it knows a topic with this id.

    ``hidden``: why the topic may exist although the caller cannot see it. ``drift``: in what way the tier-state topic's
    configuration is unsafe.
    """

    recorded_cluster: str
    answering_cluster: str
    answers: Mapping[BrokerId, bool]
    brokers_required: int
    hidden: str | None = None
    drift: str | None = None

    @property
    def exists(self) -> bool:
        """Return whether some broker of the recorded cluster knows the id."""
        return self.recorded_cluster == self.answering_cluster and any(self.answers.values())

    @property
    def unproven(self) -> str | None:
        """Return why the deletion of the topic is not proven; None if it is proven."""
        if not self.recorded_cluster or self.recorded_cluster != self.answering_cluster:
            return f"another cluster answers: {self.answering_cluster}, recorded is {self.recorded_cluster}"
        if self.hidden is not None:
            return self.hidden
        if any(self.answers.values()):
            return "a broker knows the topic"
        if len(self.answers) < self.brokers_required:
            return f"{len(self.answers)} of {self.brokers_required} brokers answered"
        return None


@dataclass(frozen=True, slots=True)
class DeclareMissing:
    """The decision to append `PartitionMissing`: the cluster with this id no longer has the topic."""

    cluster_id: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The decision to append tombstones for ``keys``, in this order, because the topic exists."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndPartition:
    """The decision to begin a terminal term and to append `PartitionDeleted`."""


@dataclass(frozen=True, slots=True)
class CondemnSegment:
    """The decision to append a delete-started for this segment."""

    segment_id: RemoteSegmentId


@dataclass(frozen=True, slots=True)
class RemoveCondemned:
    """The decision to delete the objects of this condemned segment."""

    segment_id: RemoteSegmentId


@dataclass(frozen=True, slots=True)
class EraseFacts:
    """The decision to append tombstones for ``keys`` in the terminal term, in this order."""

    keys: tuple[str, ...]


TermStep = CondemnSegment | RemoveCondemned | EraseFacts
"""The steps that need a terminal term of this process."""
CustodyStep = DeclareMissing | Withdraw | EndPartition | TermStep | str
"""A text is the reason to do nothing about the partition now."""


def next_custody(
    view: PartitionView,
    evidence: Evidence,
    policy: CustodyPolicy,
    now: TimestampMs,
    archived_to: Position | None = None,
) -> CustodyStep:
    """Return the next step about a partition without a leader, or why there is none. With an archive, objects are
    deleted and facts erased only once the archive has the facts: ``archived_to`` is its end (exclusive), or None
    without an archive.
    """
    step = _next(view, evidence, policy, now)
    if isinstance(step, RemoveCondemned) and not is_recorded(view.segments[step.segment_id], archived_to):
        return "not archived yet"
    if archived_to is None or not isinstance(step, Withdraw | EraseFacts):
        return step
    archived_keys = {live.key for live in _facts(view) if live.position < archived_to}
    count = next((at for at, key in enumerate(step.keys) if key not in archived_keys), len(step.keys))
    if count == len(step.keys):
        return step
    if count == 0:
        return "not archived yet"
    return replace(step, keys=step.keys[:count])


def _facts(view: PartitionView) -> Iterator[LiveFact]:
    yield from view.others
    for segment in view.segments.values():
        yield from segment.facts


def _next(view: PartitionView, evidence: Evidence, policy: CustodyPolicy, now: TimestampMs) -> CustodyStep:
    doubt = evidence.drift or custody_doubt(view)
    if doubt is not None:
        return doubt
    ended = ending(view)
    if evidence.exists:
        return _restore(view, ended)
    if evidence.unproven is not None:
        return evidence.unproven
    if ended is not None:
        return _clear(view, ended, policy, now)
    if not saw_alive(view):
        return "this cluster never saw the topic alive (recovered, and not mapped to a topic yet)"
    if not view.missing:
        return DeclareMissing(evidence.answering_cluster)
    rest_ms = ends_at(view, policy) - now
    return EndPartition() if rest_ms <= 0 else f"its topic is missing; it ends in {rest_ms // 1000} s"


def custody_doubt(view: PartitionView) -> str | None:
    """Return the problem that a person must solve before anything of a missing partition is deleted, or None."""
    if view.degraded:
        return f"degraded: {view.degraded[0]}"
    if view.holds:
        return f"held: {view.holds[0].reason}"
    if view.contradictions:
        return f"contradiction: {view.contradictions[0]}"
    return None


def saw_alive(view: PartitionView) -> bool:
    """Return whether a broker of this cluster led the partition. A `LeaderElected` of `recover` has broker id -1."""
    return any(fact.broker_id >= 0 for _, fact in view.of_kind(LeaderElected))


def ends_at(view: PartitionView, policy: CustodyPolicy) -> TimestampMs:
    """Return the time at which the grace of the youngest `PartitionMissing` ends."""
    return TimestampMs(max(fact.at for fact in view.missing) + policy.grace_ms)


def ending(view: PartitionView) -> PartitionDeleted | None:
    """Return the valid `PartitionDeleted` or None: accepted, of the highest terminal term with a `LeaderElected`."""
    terms = {Term(fact.epoch, live.position, fact.id) for live, fact in _terminal_leaders(view)}
    accepted = (fact for live, fact in view.of_kind(PartitionDeleted) if live.key not in view.fenced)
    return max((fact for fact in accepted if fact.term in terms), key=lambda fact: fact.term.order, default=None)


def withdrawable(view: PartitionView) -> tuple[str, ...]:
    """Return the keys of the facts that mark a partition as missing, in the order of erasing; empty once it has ended.

    They include terminal `LeaderElected` facts of processes that stopped or were fenced before they ended anything.
    """
    if ending(view) is not None:
        return ()
    marks = (view.of_kind(PartitionMissing), view.of_kind(PartitionDeleted), _terminal_leaders(view))
    return tuple(live.key for facts in marks for live, _ in facts)


def _restore(view: PartitionView, ended: PartitionDeleted | None) -> CustodyStep:
    if ended is not None:
        return "the topic answers again, but the partition has ended: nothing more is deleted"
    keys = withdrawable(view)
    return Withdraw(keys) if keys else "its topic exists"


def _clear(view: PartitionView, ended: PartitionDeleted, policy: CustodyPolicy, now: TimestampMs) -> CustodyStep:
    if _bare(view):
        return "deleted: what ended it stays, and fences what may still land"
    older = tuple(live.key for live, fact in view.of_kind(PartitionDeleted) if fact != ended)
    if older:
        return EraseFacts(older)
    waiting = None
    for segment in _in_order(view):
        step = _of_segment(view, segment, policy, now)
        if not isinstance(step, str):
            return step
        waiting = step
    return waiting or EraseFacts(tuple(_rest(view, ended)))


def is_over(view: PartitionView) -> bool:
    """Return whether the partition ended and is cleared up: nothing is left to do, whatever the cluster answers."""
    return ending(view) is not None and _bare(view)


def _bare(view: PartitionView) -> bool:
    """Return whether only the facts that ended the partition are live."""
    return not view.segments and all(
        isinstance(live.fact, PartitionDeleted)
        or (isinstance(live.fact, LeaderElected) and live.fact.epoch == TERMINAL_EPOCH)
        for live in view.others
    )


def _in_order(view: PartitionView) -> Iterator[SegmentMeaning]:
    """Iterate over the segments, first those to condemn: so the grace for readers runs for all at the same time."""
    rank = [SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED]
    yield from sorted(
        view.segments.values(),
        key=lambda segment: (rank.index(segment.state) + 1 if segment.state in rank else 0, segment.segment_id),
    )


def _of_segment(view: PartitionView, segment: SegmentMeaning, policy: CustodyPolicy, now: TimestampMs) -> CustodyStep:
    if segment.segment_id in view.kept:
        return "a person keeps the objects of a segment"
    if segment.state is SegmentState.DELETE_SEGMENT_FINISHED:
        return EraseFacts(tuple(live.key for live in in_erasing_order(segment)))
    foreign = None if segment.subject is None else not_own(segment.subject)
    if foreign is not None:
        return f"nothing of segment {segment.segment_id} is deleted: {foreign}"
    if segment.state is not SegmentState.DELETE_SEGMENT_STARTED:
        return CondemnSegment(segment.segment_id)
    lease = lease_on(view, segment, now)
    if lease is not None:
        return f"read by {lease.holder} until {lease.expires_at}"
    deleting = segment.deleting.fact if segment.deleting else None
    if isinstance(deleting, SegmentDeleteStarted) and now < deleting.at + policy.reader_grace_ms:
        return "condemned segments wait for those who are reading them"
    return RemoveCondemned(segment.segment_id)


def _rest(view: PartitionView, ended: PartitionDeleted) -> Iterator[str]:
    """Iterate over the keys about no segment: facts without effect, then lower terms, then `PartitionMissing`.

    Orders are erased oldest first. A lower term is erased after every fact that only that term could fence*.
    """
    ending_facts = LeaderElected | PartitionDeleted | PartitionMissing
    yield from (live.key for live in view.others if not isinstance(live.fact, ending_facts))
    yield from (live.key for live, _ in view.of_kind(LeaderElected) if live.position != ended.term.position)
    yield from (live.key for live, _ in view.of_kind(PartitionMissing))


def _terminal_leaders(view: PartitionView) -> list[tuple[LiveFact, LeaderElected]]:
    """Return the terminal `LeaderElected` facts, lowest term first."""
    return [each for each in view.of_kind(LeaderElected) if each[1].epoch == TERMINAL_EPOCH]
