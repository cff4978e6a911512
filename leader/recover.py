"""Rebuild the tier-state topic from a plan: for each partition a new term, then the facts of the plan.

Nothing else may write at the same time: the target is a fresh topic, and at the end each partition must mean what was
planned. (A term that an agent began in between would fence what follows it, and is found there.) The value of a key is
a function of the plan and of the term, so an interrupted recovery finds its own term and goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from ..broker.tier_topic import TierTopic
from ..rules.lost_facts import LostFacts
from ..rules.recovery import PartitionPlan, elected_of, facts_of
from ..runtime.clock import Clock
from ..runtime.id_source import IdSource
from ..runtime.operation import Operation
from ..schemas.codec import encode_fact
from ..state.errors import Fenced, IllegalTransition, InvalidRequest, Unavailable, UnknownOutcome
from ..state.facts import Fact, LeaderElected, LiveFact, SegmentCopyStarted, term_of
from ..state.ids import RECOVERER, FactId, TopicIdPartition
from ..state.keys import key_of
from ..state.offsets import Position
from ..state.partition_view import PartitionView
from ..state.segment import Term
from ..state.view import TierView
from .term import APPLY_TIMEOUT_S, UNKNOWN_LEADER_WAIT_S


@dataclass(frozen=True, slots=True)
class RecoverTools:
    """The topic to fill, a view of it, and where time and ids come from."""

    topic: TierTopic
    view: TierView
    clock: Clock
    ids: IdSource


def check_target(topic: TierTopic, view: TierView, plans: Iterable[PartitionPlan], *, resume: bool) -> bool:
    """Check that no facts of planned partitions stand or, to ``resume``, only those recover wrote for these plans.

    Facts of other partitions may stand: topics of an earlier cluster are added to them. Facts without a term count as
    recover's when a plan restores them. Returns whether everything stands already. Raises Fenced, InvalidRequest (it
    must be resumed).
    """
    for number in range(topic.mapped_partitions):
        view.require_fresh(number, 0)
    planned = {plan.partition: plan for plan in plans}
    count = 0
    for partition in sorted(planned.keys() & set(view.partitions())):
        facts = view.facts(partition)
        standing = {key_of(each) for each in planned[partition].standing}
        terms = {live.fact.id for live in facts if isinstance(live.fact, LeaderElected) and _is_own(live)}
        for live in facts:
            term = term_of(live.fact)
            if not (_is_own(live) or (term is not None and term.id in terms) or live.key in standing):
                raise Fenced(
                    "the tier-state topic already says something of this partition: recover only writes what is new",
                    key=live.key,
                    position=live.position,
                )
            count += 1
    complete = all(_stands(plan, view.facts(plan.partition)) for plan in planned.values() if plan.writes)
    if count and not resume and not complete:
        raise InvalidRequest("an interrupted recovery stands in the topic: go on with --resume", facts=count)
    return bool(count) and complete


def _stands(plan: PartitionPlan, facts: list[LiveFact]) -> bool:
    """Return whether everything that the plan writes is there. Raises Fenced for a term of another plan."""
    elected = _own_term(plan, facts)
    if elected is None:
        return False
    at = next(live.position for live in facts if live.fact == elected)
    keys = {key_of(fact) for _, fact in facts_of(plan, elected, Term(elected.epoch, at, elected.id))}
    return keys <= {live.key for live in facts}


def _is_own(live: LiveFact) -> bool:
    return isinstance(live.fact, LeaderElected) and live.fact.broker_id == RECOVERER


def recover_all(plans: Iterable[PartitionPlan], tools: RecoverTools) -> Operation[int]:
    """Recover every partition that has something to write. Return how many there were."""
    done = 0
    for plan in plans:
        if plan.writes:
            yield from recover_partition(plan, tools)
            done += 1
    return done


def recover_partition(plan: PartitionPlan, tools: RecoverTools) -> Operation[PartitionView]:
    """Write the partition's new term and everything after it; what already stands is not written again.

    Raises Fenced when something else stands there, UnknownOutcome (resume later), IllegalTransition when the partition
    does not mean what was planned in the end.
    """
    view, number = tools.view, tools.view.tier_partition(plan.partition)
    view.require_fresh(number, 0)
    standing = {live.key: live for live in view.facts(plan.partition)}
    elected = _own_term(plan, list(standing.values()))
    if elected is None:
        elected = elected_of(plan, FactId.of(tools.ids.uuid()), tools.clock.now_ms())
        yield "append leader-elected"
        view.wait_applied(number, _append(plan.partition, elected, tools), APPLY_TIMEOUT_S)
        # Q is learnt from the view, never from the acknowledgement
        standing = {live.key: live for live in view.facts(plan.partition)}
    term = Term(elected.epoch, standing[key_of(elected)].position, elected.id)
    last: Position | None = None
    for step, fact in facts_of(plan, elected, term):
        existing = standing.get(key_of(fact))
        if existing is None:
            yield step
            last = _append(plan.partition, fact, tools)
        elif existing.fact != fact:
            raise Fenced("another value stands under a key of this plan: use a fresh topic", key=existing.key)
    if last is not None:
        view.wait_applied(number, last, APPLY_TIMEOUT_S)
    return _checked(plan, term, view)


def add_lost_facts(lost: LostFacts, tools: RecoverTools) -> Operation[PartitionView]:
    """Add the facts of segments that are complete in the bucket to a partition that has facts.

    The new term belongs to no broker and rules from its own position on, so no agent may run: a term that one began in
    between would fence what follows, and is found at the end. After an interruption, start again with a new look; that
    takes a term of its own. Raises Fenced, UnknownOutcome, IllegalTransition.
    """
    plan, partition = lost.plan, lost.plan.partition
    view, number = tools.view, tools.view.tier_partition(partition)
    view.require_fresh(number, 0)
    now = view.partition(partition)
    elected = elected_of(plan, FactId.of(tools.ids.uuid()), tools.clock.now_ms())
    if now.term is not None and now.term.epoch > elected.epoch:
        elected = replace(elected, epoch=now.term.epoch)
    yield "append leader-elected"
    view.wait_applied(number, _append(partition, elected, tools), APPLY_TIMEOUT_S)
    standing = {live.key: live for live in view.facts(partition)}
    term = Term(elected.epoch, standing[key_of(elected)].position, elected.id)
    addition = replace(
        plan,
        restored=lost.segments,
        deletes=(),
        standing=(),
        log_start=None if plan.log_start == now.log_start else plan.log_start,
    )
    last = Position(-1)
    for step, fact in facts_of(addition, elected, term):
        if isinstance(fact, SegmentCopyStarted):  # one may stand without its end, which was lost: see `is_second_value`
            fact = SegmentCopyStarted(replace(fact.attempt, broker_id=RECOVERER))
        yield step
        last = _append(partition, fact, tools)
    view.wait_applied(number, last, APPLY_TIMEOUT_S)
    return _added(now, lost, term, view)


def _added(before: PartitionView, lost: LostFacts, term: Term, view: TierView) -> PartitionView:
    """Return the partition. Check that old and lost segments are readable, so nothing else wrote in between."""
    now = view.partition(lost.plan.partition)
    if now.term != term:
        raise Fenced("another term began meanwhile: an agent runs", partition=now.partition, ruling=now.term)
    expected = {*before.readable, *(replace(each.segment, term=term) for each in lost.segments)}
    if set(now.readable) != expected or now.contradictions:
        raise IllegalTransition(
            "the partition does not mean what was planned: look again",
            partition=now.partition,
            planned=len(expected),
            readable=len(now.readable),
            contradictions="; ".join(now.contradictions) or None,
        )
    return now


def _own_term(plan: PartitionPlan, standing: list[LiveFact]) -> LeaderElected | None:
    terms = [live.fact for live in standing if isinstance(live.fact, LeaderElected)]
    if not terms:
        return None
    only = terms[0]
    ours = elected_of(plan, only.id, only.elected_at)
    if plan.local_start is not None:  # it may have moved since; the other facts are made from the value of then
        ours = replace(ours, local_start=only.local_start)
    if len(terms) > 1 or ours != only:
        raise Fenced("a term of another plan stands in the topic: use a fresh one", partition=plan.partition)
    return only


def _append(partition: TopicIdPartition, fact: Fact, tools: RecoverTools) -> Position:
    """Append the fact. After an unknown outcome, wait until it appears, or until it no longer can."""
    key, number = key_of(fact), tools.view.tier_partition(partition)
    try:
        return tools.topic.append(number, key, encode_fact(fact))
    except UnknownOutcome:
        deadline = tools.clock.monotonic() + UNKNOWN_LEADER_WAIT_S
        while tools.clock.monotonic() <= deadline:
            with suppress(Unavailable):  # a view that is behind shows it later
                tools.view.require_fresh(number, 0)
            landed = next((live for live in tools.view.facts(partition) if live.fact == fact), None)
            if landed is not None:
                return landed.position
            tools.clock.sleep(0.5)
        raise


def _checked(plan: PartitionPlan, term: Term, view: TierView) -> PartitionView:
    """Return the partition. Check that it means what was planned: nothing else wrote, nothing landed twice."""
    now = view.partition(plan.partition)
    if now.term != term:
        raise Fenced("another term began meanwhile: an agent runs", partition=plan.partition, ruling=now.term)
    expected = {replace(each.segment, term=term) for each in plan.restored}
    if set(now.readable) != expected or now.log_start != plan.log_start or now.contradictions or now.degraded:
        raise IllegalTransition(
            "the recovered partition does not mean what was planned: use a fresh topic",
            partition=plan.partition,
            planned=len(expected),
            readable=len(now.readable),
            contradictions="; ".join(now.contradictions) or None,
        )
    return now
