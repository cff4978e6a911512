"""The custodian clears up after deleted topics: it asks the cluster about them, and runs one operation at a time.

It looks after the partitions, of any topic, whose facts are in a tier-state partition that this broker leads. Each
step is named, then decided again from a fresh view and fresh evidence, then taken. Two custodians of one partition are
harmless: the higher terminal term fences the lower one. Facts without a term (`PartitionMissing`, tombstones at the
very end) mean the same if they are written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TypeVar

from ..broker.control import BrokerControl
from ..rules.custody import (
    CondemnSegment,
    CustodyPolicy,
    CustodyStep,
    DeclareMissing,
    EndPartition,
    EraseFacts,
    Evidence,
    RemoveCondemned,
    TermStep,
    Withdraw,
    custody_doubt,
    is_over,
    next_custody,
    withdrawable,
)
from ..runtime.clock import Clock
from ..runtime.listener import CustodyStepTaken, Listener, OperationFailed, TermEnded, TermStarted
from ..runtime.operation import Operation
from ..runtime.watchdog import alive
from ..state.epochs import TERMINAL_EPOCH
from ..state.errors import AccessDenied, BrokerUnavailable, Fenced, TierstateError, TimedOut
from ..state.facts import DeleteReason, LeaderElected, PartitionDeleted, PartitionMissing, SegmentDeleteStarted
from ..state.ids import BrokerId, FactId, TopicId, TopicIdPartition
from ..state.offsets import Offset, Position
from ..state.partition_view import PartitionView
from ..state.segment import CopyAttempt, RemoteSegment
from ..storage.object_store import ObjectStore
from .expirer import finish_delete
from .schedule import Backoff
from .term import TermContext, TermSession, append_leader, say, unsay

DRIFT_AGE_S = 60.0


class ClusterEvidence:
    """An `AskCluster` that asks enough brokers whether a topic exists. As thread-safe as its arguments."""

    def __init__(
        self,
        broker: BrokerControl,
        recorded_cluster: str,
        replication_factor: int,
        topic_problems: Callable[[], list[str]],
        clock: Clock,
    ) -> None:
        """``recorded_cluster``: the cluster id in the ``meta/topic`` fact. ``topic_problems``: `TierTopic.problems`.

        ``replication_factor`` of the tier-state topic: above 1, a single remaining broker is not enough.
        """
        self._broker, self._recorded, self._copies = broker, recorded_cluster, replication_factor
        self._problems, self._clock = topic_problems, clock
        self._drift: tuple[float, str | None] | None = None

    def __call__(self, view: PartitionView) -> Evidence:
        """Return the answers of two brokers (one in a cluster of one), or of fewer if fewer answer.

        Raises BrokerUnavailable if no broker answers.
        """
        cluster = self._broker.cluster()
        enough = max(min(2, len(cluster.brokers)), min(2, self._copies))
        answers: dict[BrokerId, bool] = {}
        why_hidden: str | None = None
        for broker in cluster.brokers:
            if len(answers) == enough:
                break
            try:
                answers[broker], reason = self._ask(broker, view)
            except (BrokerUnavailable, TimedOut):
                continue
            why_hidden = why_hidden or reason
        return Evidence(self._recorded, cluster.cluster_id, answers, enough, why_hidden, self._standing_drift())

    def _ask(self, broker: BrokerId, view: PartitionView) -> tuple[bool, str | None]:
        """Return whether the broker knows the topic id, and why it might hide the topic (None if it does not)."""
        hidden = f"broker {broker} may hide topics: the agent needs DESCRIBE on every topic"
        try:
            exists = self._broker.topic_exists(view.partition.topic_id, broker=broker)
        except AccessDenied:
            return True, hidden
        names = [view.topic] if view.topic else []
        return exists, None if self._broker.may_describe(names, broker=broker) else hidden

    def _standing_drift(self) -> str | None:
        now = self._clock.monotonic()
        if self._drift is None or now - self._drift[0] >= DRIFT_AGE_S:
            self._drift = now, next(iter(self._problems()), None)
        problem = self._drift[1]
        return None if problem is None else f"the tier-state topic is not safe any more: {problem}"


def led_by(broker: BrokerControl, tier_topic: str, me: BrokerId, mapped: int) -> Callable[[], Collection[int]]:
    """Return a function that asks which tier-state partitions this broker leads. It raises as `BrokerControl.topic`.

    ``mapped``: the number of the topic's partitions that hold facts. Partitions that were added later are empty.
    """

    def led() -> Collection[int]:
        partitions = broker.topic(tier_topic).partitions
        return {each.partition for each in partitions if each.leader == me and each.partition < mapped}

    return led


@dataclass(slots=True)
class _Ward:
    """A partition that the custodian looks after. ``reason``: why no step is taken now; None if one is."""

    failures: Backoff
    session: TermSession | None = None
    reason: str | None = None


class Custodian:
    """Used by one thread at a time. ``leads`` returns the tier-state partitions to look after now."""

    def __init__(self, custody: CustodyTools, leads: Callable[[], Collection[int]]) -> None:
        self._custody, self._leads = custody, leads
        self._wards: dict[TopicIdPartition, _Ward] = {}

    @property
    def reasons(self) -> dict[TopicIdPartition, str]:
        """Return why no step is taken, for each partition that waits."""
        return {partition: ward.reason for partition, ward in list(self._wards.items()) if ward.reason}

    def steps(self) -> Operation[bool]:
        """Take at most one operation for each partition. Return True when there may be more to do at once.

        Raises Unavailable kinds if the cluster or the view does not answer. A failure of one partition stops no other.
        """
        more = False
        wards = self._find()
        for partition in [each for each in self._wards if each not in wards]:
            self._leave(self._wards.pop(partition), "no longer looked after")
        for partition in wards:
            ward = self._wards.setdefault(partition, _Ward(Backoff(self._custody.context.clock)))
            if ward.failures.waiting:
                continue
            try:
                more |= yield from self._step(partition, ward)
                ward.failures.clear()
            except TierstateError as error:
                self._failed(partition, ward, error)
        return more

    def _find(self) -> list[TopicIdPartition]:
        """Return partitions of unlisted topics, and those that a fact reports as missing or ended.

        Partitions that are over are left out: only the facts of their end remain, and nothing is left to do.
        """
        context = self._custody.context
        led = self._leads()
        for number in sorted(led):
            context.view.require_fresh(number, 0)
        topic_ids: set[TopicId] = {topic.topic_id for topic in context.broker.topics()}
        partitions = [each for each in context.view.partitions() if context.view.tier_partition(each) in led]
        views = [context.view.partition(each) for each in partitions]
        return [
            view.partition
            for view in views
            if (view.partition.topic_id not in topic_ids or _is_missing_or_ended(view)) and not is_over(view)
        ]

    def _step(self, partition: TopicIdPartition, ward: _Ward) -> Operation[bool]:
        custody = self._custody
        step = custody.next(partition)
        ward.reason = step if isinstance(step, str) else None
        topic = custody.context.view.partition(partition).topic or ""
        match step:
            case str():
                return False
            case DeclareMissing():
                yield from declare_missing(custody, partition)
            case Withdraw(keys=keys):
                yield from withdraw(custody, partition, keys)
            case EndPartition():
                yield from self._end(partition, ward)
            case _ if ward.session is not None:
                yield from clear(custody, ward.session, step)
            case _:  # the terminal term of another process cannot be continued
                yield from self._end(partition, ward)
        custody.listener(CustodyStepTaken(partition, topic, type(step).__name__))
        return True

    def _end(self, partition: TopicIdPartition, ward: _Ward) -> Operation[None]:
        self._leave(ward, "another terminal term begins")
        ward.session = session = yield from end_partition(self._custody, partition)
        self._custody.listener(TermStarted(partition, session.name, str(session.term)))

    def _failed(self, partition: TopicIdPartition, ward: _Ward, error: TierstateError) -> None:
        ward.failures.add(error)
        ward.reason = str(error)
        topic = self._custody.context.view.partition(partition).topic or ""
        self._custody.listener(OperationFailed(partition, topic, "custody", str(error)))
        if ward.session is not None and (isinstance(error, Fenced) or ward.session.ended):
            self._leave(ward, ward.session.ended or str(error))

    def _leave(self, ward: _Ward, reason: str) -> None:
        if ward.session is not None:
            ward.session.end(reason)
            event = TermEnded(ward.session.partition, ward.session.name, str(ward.session.term), reason)
            self._custody.listener(event)
            ward.session = None


def _is_missing_or_ended(view: PartitionView) -> bool:
    return bool(view.missing) or (view.term is not None and view.term.epoch == TERMINAL_EPOCH)


Step = TypeVar("Step", bound=CustodyStep)
AskCluster = Callable[[PartitionView], Evidence]
"""Asks the cluster now whether the topic of a partition exists. Raises Unavailable kinds, AccessDenied."""


@dataclass(frozen=True, slots=True)
class CustodyTools:
    """The tools that every operation of a custodian uses."""

    context: TermContext
    look: AskCluster
    policy: CustodyPolicy
    store: ObjectStore
    listener: Listener
    archived_to: Callable[[int], Position | None] = lambda tier_partition: None
    """Returns the position below which a tier-state partition is archived; None if no archive is kept."""

    def next(self, partition: TopicIdPartition) -> CustodyStep:
        """Return the next step, from fresh evidence and a view that was captured after the cluster answered."""
        alive()  # while a broker does not answer, checking thousands of partitions takes long
        evidence = self.look(self.context.view.partition(partition))
        archived_to = self.archived_to(self.context.view.tier_partition(partition))
        clocks = self.context.time.clocks()
        if clocks.apart is not None and evidence.drift is None and not evidence.exists:
            evidence = replace(evidence, drift=clocks.apart.text)
        view = self.context.fresh_view(partition)
        return next_custody(view, evidence, self.policy, clocks.for_deletion, archived_to)

    def must(self, partition: TopicIdPartition, *steps: type[Step]) -> Step:
        """Return the next step. Raises Fenced if it is none of ``steps``. May append a tombstone to learn the time."""
        context = self.context
        if EndPartition in steps and context.time.clocks().alone:
            context.time.ask(partition, FactId.of(context.ids.uuid()))  # no term begins by the machine's clock alone
        step = self.next(partition)
        if not isinstance(step, steps):
            raise Fenced("the partition is not to be dealt with so any more", partition=partition, now=step)
        return step


def declare_missing(custody: CustodyTools, partition: TopicIdPartition) -> Operation[None]:
    """Append `PartitionMissing`: the topic no longer exists. The grace of `CustodyPolicy` begins with this fact."""
    yield "append partition-missing"
    cluster_id = custody.must(partition, DeclareMissing).cluster_id
    context = custody.context
    new = FactId.of(context.ids.uuid())
    fact = PartitionMissing(partition, new, cluster_id, context.broker_id, context.time.clocks().latest)
    say(context.topic, context.view, partition, fact)


def withdraw(custody: CustodyTools, partition: TopicIdPartition, keys: tuple[str, ...]) -> Operation[None]:
    """Erase the facts that report the topic as missing, because the topic exists."""
    for key in keys:
        yield "append tombstone"
        if key in custody.must(partition, Withdraw).keys:
            unsay(custody.context.topic, custody.context.view, partition, key)


def end_partition(custody: CustodyTools, partition: TopicIdPartition) -> Operation[TermSession]:
    """Begin the terminal term and append `PartitionDeleted`. Only terminal terms can write about the partition then.

    Also begins a further terminal term if another process stopped before the end. If the partition must not end after
    all, raises Fenced and erases the new term, which has written no other fact that could still land.
    """
    yield "append leader-elected"
    custody.must(partition, EndPartition, *ENDED)
    session = _terminal_term(custody, partition)
    yield "append partition-deleted"
    step = custody.next(partition)
    apart = custody.context.time.clocks().apart
    if apart is not None:  # the term is not erased: the topic does not exist, and the next custodian continues
        raise Fenced(apart.text, partition=partition)
    if not isinstance(step, (EndPartition, *ENDED)):
        yield "append tombstone"
        view = session.view(0)
        for key in withdrawable(view) if custody_doubt(view) is None else ():
            if key.endswith(f"/{session.term.id}"):
                unsay(custody.context.topic, custody.context.view, partition, key)
        raise Fenced("the partition is not to be ended any more", partition=partition, now=step)
    session.append(PartitionDeleted(partition, session.term, session.now()))
    return session


ENDED = (CondemnSegment, RemoveCondemned, EraseFacts)
"""Steps that a terminal term of this process takes on a partition that has ended."""


def _terminal_term(custody: CustodyTools, partition: TopicIdPartition) -> TermSession:
    """Begin a terminal term with unchanged lineage, so that only deletes change what readers get, not this term."""
    context = custody.context
    view = context.fresh_view(partition)
    elected = LeaderElected(
        partition=partition,
        topic=view.topic or "",
        epoch=TERMINAL_EPOCH,
        id=FactId.of(context.ids.uuid()),
        broker_id=context.broker_id,
        management_address=context.management_address,
        lineage=view.lineage,
        local_start=Offset(view.log_start or 0),
        elected_at=context.time.now_ms(),
    )
    term = append_leader(context.topic, context.view, context.clock, elected)
    return TermSession(context, partition, view.topic or "", term, context.broker_id)


def clear(custody: CustodyTools, session: TermSession, step: TermStep) -> Operation[None]:
    """Take one step on a partition that this process ended. Raises the store's errors."""
    match step:
        case CondemnSegment():
            yield "append delete-started"
            subject, reason = _subject(custody, session, step), DeleteReason.PARTITION_DELETED
            session.append(SegmentDeleteStarted(subject, session.term, session.counter(), reason, session.now()))
        case RemoveCondemned():
            yield "delete objects"
            yield from finish_delete(session, custody.store, _subject(custody, session, step), custody.listener)
        case EraseFacts(keys=keys):
            yield from _erase(custody, session, keys)


def _subject(
    custody: CustodyTools, session: TermSession, step: CondemnSegment | RemoveCondemned
) -> CopyAttempt | RemoteSegment:
    """Return the descriptor of the step's segment. Raises Fenced if the step is no longer the next step."""
    session.require_safe_topic()
    now = custody.must(session.partition, type(step))
    segment = session.view().segments.get(step.segment_id)
    if now != step or segment is None or segment.subject is None:
        raise session.fenced("the segment is not to be deleted any more", segment_id=step.segment_id)
    return segment.subject


def _erase(custody: CustodyTools, session: TermSession, keys: tuple[str, ...]) -> Operation[None]:
    for at, key in enumerate(keys):
        yield "append tombstone"
        step = custody.next(session.partition)
        if not isinstance(step, EraseFacts) or step.keys[0] != key:
            if at == 0:
                raise session.fenced("the fact is not to be erased now", key=key, now=step)
            return  # the earlier tombstones changed which key may be erased next: decide again
        session.require_safe_topic()
        session.view()
        session.erase(key)
