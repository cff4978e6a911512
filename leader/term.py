"""A term: this agent's right to write facts about one partition. Rules marked * are in `docs/tier-state.md`.

A term begins in every leader epoch, whether or not there is something to do (`rules/lineages.py`). A term is in force
only while its own `LeaderElected` is in the view, at position Q. Q is read from that view, never from the
acknowledgement*. Nothing is decided before the view has applied this term's last acknowledged append*. Any unknown
outcome ends the term. A fact that was appended with an unknown outcome is never appended again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ..broker.control import BrokerControl
from ..broker.tier_topic import APPEND_TIMEOUT_S, TierTopic
from ..log.local_log import LocalLog, LocalSnapshot
from ..rules.lineages import continued, earlier_lineages
from ..runtime.clock import Clock
from ..runtime.id_source import IdSource
from ..runtime.operation import Operation
from ..schemas.codec import encode_fact
from ..state.epochs import LeaderEpoch, Lineage
from ..state.errors import AccessDenied, Fenced, InvalidRequest, LineageTooLong, Unavailable, UnknownOutcome, ViewBehind
from ..state.facts import Fact, LeaderElected, LogStartAdvanced
from ..state.ids import BrokerId, FactId, TopicIdPartition
from ..state.keys import key_of
from ..state.lineage import below, compose, folded, highest_log_start
from ..state.object_keys import ObjectKeys
from ..state.offsets import Offset, Position, TimestampMs
from ..state.partition_view import PartitionView, require_readable
from ..state.routing import LocalBounds
from ..state.segment import Term
from ..state.view import TierView
from ..storage.object_store import ObjectStore
from ..storage.segment.known import check_known
from .brokers_time import BrokersTime

APPLY_TIMEOUT_S = 30.0
FRESH_S = 60.0
SAFE_FOR_S = 1.0
"""For how many seconds operations reuse an answer about the tier-state topic: expiry runs many of them in a row."""
UNKNOWN_LEADER_WAIT_S = APPEND_TIMEOUT_S + 60.0


OtherReplicas = Callable[[TopicIdPartition, str], Sequence[Lineage]]
"""Returns the epoch checkpoints of a partition's other replicas whose agents answer in time. Raises nothing."""


@dataclass(frozen=True, slots=True)
class TermContext:
    """The context that every term of this agent shares: its identity, and the interfaces it works through."""

    broker_id: BrokerId
    management_address: str
    topic: TierTopic
    view: TierView
    broker: BrokerControl
    log: LocalLog
    clock: Clock
    ids: IdSource
    store: ObjectStore
    keys: ObjectKeys
    other_replicas: OtherReplicas = lambda partition, name: ()

    @property
    def time(self) -> BrokersTime:
        """Return the clock for deletes and for times in facts; ``clock`` measures durations within this process."""
        return BrokersTime(self.clock, self.topic, self.store)

    def fresh_view(self, partition: TopicIdPartition, max_age: float = 0) -> PartitionView:
        """Return the partition from a view with an end captured at most ``max_age`` seconds ago. Raises ViewBehind."""
        self.view.require_fresh(self.view.tier_partition(partition), max_age)
        return self.view.partition(partition)


class TermSession:
    """One term of one partition, whose `LeaderElected` is in the view. Used by one thread at a time."""

    def __init__(
        self, context: TermContext, partition: TopicIdPartition, name: str, term: Term, broker_id: BrokerId
    ) -> None:
        """``broker_id``: the broker that leads the partition in the term's epoch."""
        self.context, self.partition, self.name, self.term = context, partition, name, term
        self.broker_id = broker_id
        self._tier_partition = context.view.tier_partition(partition)
        self._counter = 0
        self._safe_at = float("-inf")
        self.ended: str | None = None
        """Why no further step is taken in this term; None while it may be in force."""

    def fenced(self, message: str, **facts: object) -> Fenced:
        """Return an error that names the partition."""
        return Fenced(message, topic=self.name, partition=self.partition, **facts)

    def counter(self) -> int:
        """Increment K, the counter of this term's facts, and return it."""
        self._counter += 1
        return self._counter

    def now(self) -> TimestampMs:
        """Return the time that facts of this term carry: the latest that any clock shows."""
        return self.context.time.clocks().latest

    def time_of_deletion(self) -> TimestampMs:
        """Return the time to compute ages with, right before a deletion because of age.

        Raises Fenced while the clocks are in doubt. The first append of the next term obtains the brokers' time again.
        """
        clocks = self.context.time.clocks()
        if clocks.doubt is not None:
            raise self.fenced(clocks.doubt.text)
        return clocks.for_deletion

    def bounds(self) -> LocalBounds:
        """Return the broker's bounds. Raises Fenced if a newer epoch exists, BrokerUnavailable if it does not lead."""
        context, number = self.context, self.partition.partition
        return context.broker.bounds(self.name, number, broker=self.broker_id, epoch=self.term.epoch)

    def view(self, max_age: float = FRESH_S) -> PartitionView:
        """Return the partition from a view that includes an end captured at most ``max_age`` seconds ago.

        Raises Fenced, and ends the term, if the term is no longer in force. Also raises ViewBehind.
        """
        self._require_going()
        view = self.context.fresh_view(self.partition, max_age)
        if view.term != self.term:
            self.end("a higher term rules" if view.term and view.term.order > self.term.order else "its fact is gone")
            raise self.fenced("this term no longer rules", term=self.term, ruling=view.term)
        return view

    def _require_going(self) -> None:
        if self.ended:
            raise self.fenced(self.ended, term=self.term)

    def log_start(
        self, view: PartitionView, offset: Offset, reason: str, *, whatever_log: bool = False
    ) -> LogStartAdvanced:
        """Return a log start fact of this term. It holds on the log that the lineage below ``offset`` describes*.

        ``whatever_log``: the fact has no lineage, so it holds on every log from before this term's epoch.
        """
        lineage = Lineage() if whatever_log else below(view.lineage, offset)
        return LogStartAdvanced(self.partition, offset, self.term, self.counter(), reason, self.now(), lineage)

    def append(self, fact: Fact) -> Position:
        """Append a fact, and wait until this process's view has applied it. Return its position.

        Raises Fenced if the view shows that the term ended. UnknownOutcome and AccessDenied end the term.
        """
        return self._append(key_of(fact), encode_fact(fact))

    def erase(self, key: str) -> Position:
        """Append the tombstone of a key, and wait until the view has applied it. Raises the errors of `append`."""
        return self._append(key, None)

    def _append(self, key: str, value: bytes | None) -> Position:
        self._require_going()
        try:
            position = self.context.topic.append(self._tier_partition, key, value)
        except (UnknownOutcome, AccessDenied):  # an attempt before the refused one may have landed
            self.outcome_unknown()
            raise
        self.read_own_write(position)
        self.view()
        return position

    def outcome_unknown(self) -> None:
        """End the term so that it makes no further decisions, because a fact that it appended may still land."""
        self.end("an append of unknown outcome")

    def read_own_write(self, position: Position) -> None:
        """Wait until the view has applied ``position``*; the next decision needs it. ViewBehind ends the term."""
        try:
            self.context.view.wait_applied(self._tier_partition, position, APPLY_TIMEOUT_S)
        except ViewBehind:
            self.end("the view did not apply an own write in time")
            raise

    def end(self, reason: str) -> None:
        """End the term: no further step is taken in it."""
        self.ended = self.ended or reason

    def require_safe_topic(self) -> None:
        """Check now that the tier-state topic is safe*: the answer that the last look used may be a minute old.

        An answer is reused for `SAFE_FOR_S`. Raises Fenced if the topic is not safe, BrokerUnavailable.
        """
        now = self.context.clock.monotonic()
        if now - self._safe_at >= SAFE_FOR_S:
            problem = next(iter(self.context.topic.problems()), None)
            if problem is not None:
                raise self.fenced(f"the tier-state topic is not safe any more: {problem}")
            self._safe_at = now

    def confirm_leadership(self) -> None:
        """Check that the broker leads this topic id in this term's epoch*. Raises Fenced, BrokerUnavailable."""
        epoch, _ = confirmed(self.context, self.partition, self.name, self.broker_id)
        if epoch != self.term.epoch:
            self.end("the leader epoch changed")
            raise self.fenced("the leader epoch changed", term=self.term, leader_epoch=epoch)


def confirmed(
    context: TermContext, partition: TopicIdPartition, name: str, broker_id: BrokerId
) -> tuple[LeaderEpoch, LocalSnapshot]:
    """Return the epoch in which this broker leads the partition, and a snapshot of the partition's folder.

    Metadata may be stale, and a new leader may answer ListOffsets. So the epoch counts only if the folder confirms it*:
    its `leader-epoch-checkpoint`, read after the answer, ends in the epoch, and `partition.metadata` holds the topic
    id. Raises Fenced if it does not, BrokerUnavailable (LeaderMoved if this broker does not lead).
    """
    bounds = context.broker.bounds(name, partition.partition, broker=broker_id)
    epoch, local = bounds.leader_epoch, context.log.snapshot(partition, name, bounds.local_start)
    if epoch is None or not ends_in(local.checkpoint, epoch):
        raise Fenced(
            "the local epoch checkpoint does not end in the leader's epoch",
            partition=partition,
            topic=name,
            leader_epoch=epoch,
            checkpoint=local.checkpoint.last_epoch,
        )
    return epoch, local


def ends_in(checkpoint: Lineage, epoch: LeaderEpoch) -> bool:
    """Return whether the broker's checkpoint ends in this epoch*: another leader may have answered the request."""
    return checkpoint.last_epoch == epoch


def composed(context: TermContext, view: PartitionView, local: LocalSnapshot) -> Lineage:
    """Return the lineage of a term that begins now. Other replicas are queried only if no fact has the log's past.

    Epochs that lie wholly below the log start of this lineage are folded, because a log start never moves back.
    """
    earlier = earlier_lineages(view, local.checkpoint)
    lineage = continued(view, local.checkpoint, local.lineage, earlier)
    if view.cannot_place(lineage):
        others = [compose(each, earlier)[0] for each in context.other_replicas(local.partition, local.name)]
        lineage = continued(view, local.checkpoint, local.lineage, [*earlier, *others])
    return folded(lineage, highest_log_start(view.log_starts, lineage))


def begin_term(context: TermContext, partition: TopicIdPartition, name: str) -> Operation[TermSession]:
    """Begin a term: append `LeaderElected`, and read the fact and its position Q from this process's view.

    The first term of a partition also writes the broker's earliest offset as the log start, before anything is copied.
    Raises TierStateLost (facts were lost), UpgradeNeeded (a later release wrote facts*), and the store's errors. No
    term begins then. *Later terms would trust the new lineage as complete, although it lacks what those facts say.
    """
    broker_id = context.log.broker_of(partition)
    epoch, local = confirmed(context, partition, name, broker_id)
    view = context.fresh_view(partition)
    if view.term is not None and view.term.epoch > epoch:
        raise Fenced(
            "a later epoch already rules", topic=name, partition=partition, leader_epoch=epoch, ruling=view.term
        )
    require_readable(view, name)
    check_known(view, name, context.store, context.keys)
    elected = LeaderElected(
        partition=partition,
        topic=name,
        epoch=epoch,
        id=FactId.of(context.ids.uuid()),
        broker_id=broker_id,
        management_address=context.management_address,
        lineage=composed(context, view, local),
        local_start=context.broker.bounds(name, partition.partition, broker=broker_id).local_start,
        elected_at=context.time.now_ms(),
    )
    yield "append leader-elected"
    context.log.require_owned(partition)  # this process may have been frozen: the owner's term would be taken from it
    term = append_leader(context.topic, context.view, context.clock, elected)
    session = TermSession(context, partition, name, term, broker_id)
    view = session.view()
    if view.log_start is None:
        yield "append log-start"
        session.append(session.log_start(view, session.bounds().local_start, "first term"))
    return session


def append_leader(topic: TierTopic, view: TierView, clock: Clock, elected: LeaderElected) -> Term:
    """Append the fact and return its term, with Q from the view.

    Raises LineageTooLong if the fact is too large although folded: a retry would not be shorter.
    """
    try:
        value = encode_fact(elected)
    except InvalidRequest as error:
        raise LineageTooLong(
            "no term can begin: too many leader epochs lie above the log start",
            partition=elected.partition,
            epochs=len(elected.lineage.entries),
            because=error,
        ) from error
    key, partition, number = key_of(elected), elected.partition, view.tier_partition(elected.partition)
    view.wait_applied(number, append_once(topic, view, clock, partition, elected, value), APPLY_TIMEOUT_S)
    for live in view.facts(partition):
        if live.key == key:
            return Term(elected.epoch, live.position, elected.id)
    raise Fenced("the own term is not in the view", partition=partition, key=key)


def append_once(
    topic: TierTopic, view: TierView, clock: Clock, partition: TopicIdPartition, fact: Fact, value: bytes
) -> Position:
    """Append a fact and return its position. After an unknown outcome, wait until it appears or cannot land*."""
    number = view.tier_partition(partition)
    try:
        return topic.append(number, key_of(fact), value)
    except UnknownOutcome:
        deadline = clock.monotonic() + UNKNOWN_LEADER_WAIT_S
        while (landed := next((live for live in view.facts(partition) if live.fact == fact), None)) is None:
            if clock.monotonic() > deadline:
                raise
            with suppress(Unavailable):  # the view shows the fact later; raising here would send a second one
                view.require_fresh(number, 0)
            clock.sleep(0.5)
        return landed.position


def say(topic: TierTopic, view: TierView, partition: TopicIdPartition, fact: Fact) -> None:
    """Append a fact that no term writes, and wait until the view has applied it. Nothing can fence such a fact.

    So check a fresh view first. Raises InvalidRequest if the fact is too large. After UnknownOutcome, search the view
    before appending it again.
    """
    _append(topic, view, partition, key_of(fact), encode_fact(fact))


def unsay(topic: TierTopic, view: TierView, partition: TopicIdPartition, key: str) -> None:
    """Append the tombstone of a key, and wait until the view has applied it. May be repeated: no key is reused."""
    _append(topic, view, partition, key, None)


def _append(topic: TierTopic, view: TierView, partition: TopicIdPartition, key: str, value: bytes | None) -> None:
    tier_partition = view.tier_partition(partition)
    position = topic.append(tier_partition, key, value)
    view.wait_applied(tier_partition, position, APPLY_TIMEOUT_S)
