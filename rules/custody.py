"""The custody of a partition whose topic was deleted. Pure: its view, the evidence, a policy → one step, or why none.

    its topic was deleted               append `PartitionMissing`                   `DeclareMissing`
    missing for `custodian.grace`       the terminal term, then `PartitionDeleted`  `EndPartition`
    ended: every segment                delete-started, objects, delete-finished    `CondemnSegment`, `RemoveCondemned`
    ended: every other key              tombstones, `PartitionMissing` last         `EraseFacts`
    its topic answers before the end    tombstones for `PartitionMissing`           `Withdraw`

All state is in the live set, so any process continues where another one stopped. The rules:

- **Absence must be proven.** The partition is left alone if another cluster answers, if topics may be hidden from the
  caller, if one broker knows the id, or if too few brokers answer.
- **Only topics that this cluster saw alive** can be missing: a `LeaderElected` of a real broker is live. Ids that
  `recover` wrote have none until their topic is mapped.
- **A `PartitionDeleted` counts only together with the terminal `LeaderElected` of its own term.** So a terminal term
  that did not end the partition can be withdrawn, and a late `PartitionDeleted` of that term has no effect.
- **The terminal `LeaderElected` and its `PartitionDeleted` stay for good***: they fence every late fact of an older
  term, which is then cleared up like all others. Without them a copy that a zombie finishes would be a readable segment
  again, in a partition without a leader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..state.epochs import TERMINAL_EPOCH
from ..state.facts import LeaderElected, LiveFact, PartitionDeleted, SegmentDeleteStarted
from ..state.ids import BrokerId, RemoteSegmentId
from ..state.object_name import not_own
from ..state.offsets import Position, TimestampMs
from ..state.partition_view import PartitionView, SegmentMeaning
from ..state.segment import SegmentState
from ..state.termless_facts import PartitionMissing
from .erase import in_erasing_order
from .expire import is_recorded
from .leases import lease_on


@dataclass(frozen=True, slots=True)
class CustodyPolicy:
    """Times in milliseconds: ``grace_ms`` is how long a topic must be missing before its partitions end, and
    ``reader_grace_ms`` how long a condemned segment waits for readers.
    """

    grace_ms: int
    reader_grace_ms: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """The brokers' current answers about a topic. ``answers``: broker → whether it knows a topic with this id.

    ``hidden``: why a topic could exist unseen. ``drift``: in what way the tier-state topic's configuration is unsafe.
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
    """The cluster with this id no longer has the topic, and no fact records it yet."""

    cluster_id: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The topic exists: append tombstones for these keys, in this order."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndPartition:
    """Begin a terminal term and append `PartitionDeleted`."""


@dataclass(frozen=True, slots=True)
class CondemnSegment:
    """Append a delete-started for this segment."""

    segment_id: RemoteSegmentId


@dataclass(frozen=True, slots=True)
class RemoveCondemned:
    """Delete the objects of this condemned segment."""

    segment_id: RemoteSegmentId


@dataclass(frozen=True, slots=True)
class EraseFacts:
    """Append tombstones for these keys in the terminal term, in this order."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoCustody:
    """The decision to do nothing about the partition now, with its reason."""

    reason: str


TermStep = CondemnSegment | RemoveCondemned | EraseFacts
"""The steps that need a terminal term of this process."""
CustodyStep = DeclareMissing | Withdraw | EndPartition | TermStep | NoCustody


def next_custody(
    view: PartitionView,
    evidence: Evidence,
    policy: CustodyPolicy,
    now: TimestampMs,
    archived_to: Position | None = None,
) -> CustodyStep:
    """Return the next step about a partition without a leader. ``archived_to``: positions below it are archived; None
    if no archive is kept.
    """
    step = _next(view, evidence, policy, now)
    if isinstance(step, RemoveCondemned) and not is_recorded(view.segments[step.segment_id], archived_to):
        return NoCustody("not archived yet")
    if archived_to is None or not isinstance(step, Withdraw | EraseFacts):
        return step
    archived_keys = {live.key for live in _facts(view) if live.position < archived_to}
    count = next((at for at, key in enumerate(step.keys) if key not in archived_keys), len(step.keys))
    if count == len(step.keys):
        return step
    if count == 0:
        return NoCustody("not archived yet")
    return Withdraw(step.keys[:count]) if isinstance(step, Withdraw) else EraseFacts(step.keys[:count])


def _facts(view: PartitionView) -> Iterator[LiveFact]:
    yield from view.others
    for segment in view.segments.values():
        yield from segment.facts


def _next(view: PartitionView, evidence: Evidence, policy: CustodyPolicy, now: TimestampMs) -> CustodyStep:
    doubt = evidence.drift or custody_doubt(view)
    if doubt is not None:
        return NoCustody(doubt)
    ended = ending(view)
    if evidence.exists:
        return _restore(view, ended)
    if evidence.unproven is not None:
        return NoCustody(evidence.unproven)
    if ended is not None:
        return _clear(view, ended, policy, now)
    if not saw_alive(view):
        return NoCustody("this cluster never saw the topic alive (recovered, and not mapped to a topic yet)")
    if not view.missing:
        return DeclareMissing(evidence.answering_cluster)
    rest_ms = ends_at(view, policy) - now
    return EndPartition() if rest_ms <= 0 else NoCustody(f"its topic is missing; it ends in {rest_ms // 1000} s")


def custody_doubt(view: PartitionView) -> str | None:
    """Return what a person must clear up before anything of a missing partition is deleted; None if nothing."""
    if view.degraded:
        return f"degraded: {view.degraded[0]}"
    if view.holds:
        return f"held: {view.holds[0].reason}"
    if view.contradictions:
        return f"contradiction: {view.contradictions[0]}"
    return None


def saw_alive(view: PartitionView) -> bool:
    """Return whether a broker of this cluster led it; a `LeaderElected` of `recover` has broker id -1."""
    return any(isinstance(live.fact, LeaderElected) and live.fact.broker_id >= 0 for live in view.others)


def ends_at(view: PartitionView, policy: CustodyPolicy) -> TimestampMs:
    """Return the time at which the grace of the youngest `PartitionMissing` ends."""
    return TimestampMs(max(fact.at for fact in view.missing) + policy.grace_ms)


def ending(view: PartitionView) -> PartitionDeleted | None:
    """Return the valid `PartitionDeleted`: accepted, and of the highest terminal term with a live `LeaderElected`."""
    terms = {(live.position, live.fact.id) for live in _terminal_leaders(view) if isinstance(live.fact, LeaderElected)}
    candidates = [
        live.fact
        for live in view.others
        if isinstance(live.fact, PartitionDeleted) and live.key not in view.fenced
        if live.fact.term.epoch == TERMINAL_EPOCH and (live.fact.term.position, live.fact.term.id) in terms
    ]
    return max(candidates, key=lambda fact: fact.term.order, default=None)


def withdrawable(view: PartitionView) -> tuple[str, ...]:
    """Return the keys of the facts that mark a partition as missing, in the order of erasing; none once it has ended.

    They include terminal `LeaderElected` facts of processes that died or were overtaken before they ended anything.
    """
    if ending(view) is not None:
        return ()
    missing = [live.key for live in view.others if isinstance(live.fact, PartitionMissing)]
    void = [live.key for live in view.others if isinstance(live.fact, PartitionDeleted)]
    return (*missing, *void, *(live.key for live in _terminal_leaders(view)))


def _restore(view: PartitionView, ended: PartitionDeleted | None) -> CustodyStep:
    if ended is not None:
        return NoCustody("the topic answers again, but the partition has ended: nothing more is deleted")
    keys = withdrawable(view)
    return Withdraw(keys) if keys else NoCustody("its topic exists")


def _clear(view: PartitionView, ended: PartitionDeleted, policy: CustodyPolicy, now: TimestampMs) -> CustodyStep:
    if _bare(view):
        return NoCustody("deleted: what ended it stays, and fences what may still land")
    deleted = [live for live in view.others if isinstance(live.fact, PartitionDeleted)]
    older = tuple(live.key for live in deleted if live.fact != ended)
    if older:
        return EraseFacts(older)
    waiting = None
    for segment in _in_order(view):
        step = _of_segment(view, segment, policy, now)
        if not isinstance(step, NoCustody):
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
    """Iterate over the segments, those to condemn first: so the grace for readers passes for all at the same time."""
    rank = [SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED]
    yield from sorted(
        view.segments.values(),
        key=lambda segment: (rank.index(segment.state) + 1 if segment.state in rank else 0, segment.segment_id),
    )


def _of_segment(view: PartitionView, segment: SegmentMeaning, policy: CustodyPolicy, now: TimestampMs) -> CustodyStep:
    if segment.segment_id in view.kept:
        return NoCustody("a person keeps the objects of a segment")
    if segment.state is SegmentState.DELETE_SEGMENT_FINISHED:
        return EraseFacts(tuple(live.key for live in in_erasing_order(segment)))
    foreign = None if segment.subject is None else not_own(segment.subject)
    if foreign is not None:
        return NoCustody(f"nothing of segment {segment.segment_id} is deleted: {foreign}")
    if segment.state is not SegmentState.DELETE_SEGMENT_STARTED:
        return CondemnSegment(segment.segment_id)
    lease = lease_on(view, segment, now)
    if lease is not None:
        return NoCustody(f"read by {lease.holder} until {lease.expires_at}")
    deleting = segment.deleting.fact if segment.deleting else None
    if isinstance(deleting, SegmentDeleteStarted) and now < deleting.at + policy.reader_grace_ms:
        return NoCustody("condemned segments wait for those who are reading them")
    return RemoveCondemned(segment.segment_id)


def _rest(view: PartitionView, ended: PartitionDeleted) -> Iterator[str]:
    """Iterate over the keys about no segment: facts without effect, then lower terms, then `PartitionMissing`.

    Orders go oldest first, as always. A lower term goes after every fact that only that term could fence*.
    """
    ending_facts = LeaderElected | PartitionDeleted | PartitionMissing
    yield from (live.key for live in view.others if not isinstance(live.fact, ending_facts))
    leaders = [live for live in view.others if isinstance(live.fact, LeaderElected)]
    yield from (live.key for live in leaders if live.position != ended.term.position)
    yield from (live.key for live in view.others if isinstance(live.fact, PartitionMissing))


def _terminal_leaders(view: PartitionView) -> list[LiveFact]:
    """Return the terminal `LeaderElected` facts, lowest term first."""
    return [live for live in view.others if isinstance(live.fact, LeaderElected) and live.fact.epoch == TERMINAL_EPOCH]
