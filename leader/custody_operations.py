"""The custodian's operations. Each step is named, then decided again from a fresh view and fresh evidence, then taken.

Two custodians of one partition are harmless: the higher terminal term fences the lower one. Facts without a term
(`PartitionMissing`, tombstones at the very end) mean the same if they are written twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

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
    next_custody,
    withdrawable,
)
from ..runtime.listener import Listener, SegmentDeleted
from ..runtime.operation import Operation
from ..runtime.watchdog import alive
from ..state.epochs import TERMINAL_EPOCH
from ..state.errors import Fenced
from ..state.facts import (
    DeleteReason,
    LeaderElected,
    PartitionDeleted,
    PartitionMissing,
    SegmentDeleteFinished,
    SegmentDeleteStarted,
)
from ..state.ids import FactId, RemoteSegmentId, TopicIdPartition
from ..state.offsets import Offset, Position
from ..state.partition_view import PartitionView
from ..state.segment import CopyAttempt, RemoteSegment, Term
from ..storage.object_store import ObjectStore
from ..storage.segment.writer import delete_segment
from .expirer import check_gone
from .term import TermContext, TermSession, append_leader
from .termless import say, unsay

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

    def view(self, partition: TopicIdPartition) -> PartitionView:
        """Return the partition from a view that includes an end captured now. Raises ViewBehind."""
        self.context.view.require_fresh(self.context.view.tier_partition(partition), 0)
        return self.context.view.partition(partition)

    def next(self, partition: TopicIdPartition) -> CustodyStep:
        """Return the next step, from fresh evidence and a view that was captured after the cluster answered."""
        alive()  # while a broker does not answer, checking thousands of partitions takes long
        evidence = self.look(self.context.view.partition(partition))
        archived_to = self.archived_to(self.context.view.tier_partition(partition))
        clocks = self.context.time.clocks()
        if clocks.apart is not None and evidence.drift is None and not evidence.exists:
            evidence = replace(evidence, drift=clocks.apart.text)
        return next_custody(self.view(partition), evidence, self.policy, clocks.for_deletion, archived_to)

    def must(self, partition: TopicIdPartition, *steps: type[CustodyStep]) -> CustodyStep:
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
    step = custody.must(partition, DeclareMissing)
    assert isinstance(step, DeclareMissing)
    context = custody.context
    new = FactId.of(context.ids.uuid())
    fact = PartitionMissing(partition, new, step.cluster_id, context.broker_id, context.time.clocks().latest)
    say(context.topic, context.view, partition, fact)


def withdraw(custody: CustodyTools, partition: TopicIdPartition, keys: tuple[str, ...]) -> Operation[None]:
    """Erase the facts that report the topic as missing, because the topic exists."""
    for key in keys:
        yield "append tombstone"
        step = custody.must(partition, Withdraw)
        if isinstance(step, Withdraw) and key in step.keys:
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
    view = custody.view(partition)
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
    position = append_leader(context, elected)
    term = Term(TERMINAL_EPOCH, position, elected.id)
    return TermSession(context, partition, view.topic or "", term, context.broker_id)


def clear(custody: CustodyTools, session: TermSession, step: TermStep) -> Operation[None]:
    """Take one step on a partition that this process ended."""
    match step:
        case CondemnSegment(segment_id=segment_id):
            yield from _start_delete(custody, session, segment_id)
        case RemoveCondemned(segment_id=segment_id):
            yield from _remove_objects(custody, session, segment_id)
        case EraseFacts(keys=keys):
            yield from _erase(custody, session, keys)


def _start_delete(custody: CustodyTools, session: TermSession, segment_id: RemoteSegmentId) -> Operation[None]:
    yield "append delete-started"
    subject = _subject(custody, session, CondemnSegment(segment_id))
    reason = DeleteReason.PARTITION_DELETED
    session.append(SegmentDeleteStarted(subject, session.term, session.counter(), reason, session.now()))


def _remove_objects(custody: CustodyTools, session: TermSession, segment_id: RemoteSegmentId) -> Operation[None]:
    """Delete the objects, manifest first, check that none remains, and append delete-finished. Raises store errors."""
    yield "delete objects"
    subject = _subject(custody, session, RemoveCondemned(segment_id))
    delete_segment(custody.store, subject)
    check_gone(custody.store, subject.object_key)
    yield "append delete-finished"
    session.append(SegmentDeleteFinished(subject, session.term, session.counter(), session.now()))
    size = subject.object_bytes if isinstance(subject, RemoteSegment) else 0
    custody.listener(SegmentDeleted(session.partition, session.name, segment_id, subject.offsets, size))


def _subject(
    custody: CustodyTools, session: TermSession, step: CondemnSegment | RemoveCondemned
) -> CopyAttempt | RemoteSegment:
    """Return the descriptor of the step's segment. Raises Fenced if the step is no longer the next step."""
    session.require_safe_topic()
    now = custody.must(session.partition, type(step))
    segment = session.view().segments.get(step.segment_id)
    if now != step or segment is None or segment.subject is None:
        raise Fenced(
            "the segment is not to be deleted any more",
            topic=session.name,
            partition=session.partition,
            segment_id=step.segment_id,
        )
    return segment.subject


def _erase(custody: CustodyTools, session: TermSession, keys: tuple[str, ...]) -> Operation[None]:
    for at, key in enumerate(keys):
        yield "append tombstone"
        step = custody.next(session.partition)
        if not isinstance(step, EraseFacts) or step.keys[0] != key:
            if at == 0:
                raise Fenced(
                    "the fact is not to be erased now",
                    topic=session.name,
                    partition=session.partition,
                    key=key,
                    now=step,
                )
            return  # the earlier tombstones changed which key may be erased next: decide again
        session.require_safe_topic()
        session.view()
        session.erase(key)
