"""Rebuild the tier-state topic from a plan: append a new term for each partition, then the facts of the plan.

No other process may write at the same time: the target is a fresh topic. At the end, each partition is compared with
the plan. (If an agent began a term in that time, its term fences later facts; the comparison finds that.) The value of
a key depends only on the plan and the term, so an interrupted recovery can continue.
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
    """The topic to fill, a view of that topic, and the sources of time and ids."""

    topic: TierTopic
    view: TierView
    clock: Clock
    ids: IdSource


def check_target(topic: TierTopic, view: TierView, plans: Iterable[PartitionPlan], *, resume: bool) -> bool:
    """Check that the topic has no facts of planned partitions, except facts that recover wrote for these plans.

    Facts of other partitions are allowed, so that topics of an earlier cluster can be added. Facts without a term count
    as recover's if a plan restores them. Return whether all planned facts are in the topic already. Raises Fenced for
    other facts, and InvalidRequest if some planned facts are there but ``resume`` is False.
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
    """Return whether ``facts`` has every key that the plan writes. Raises Fenced for a term of another plan."""
    elected = _own_term(plan, facts)
    if elected is None:
        return False
    at = next(live.position for live in facts if live.fact == elected)
    keys = {key_of(fact) for _, fact in facts_of(plan, elected, Term(elected.epoch, at, elected.id))}
    return keys <= {live.key for live in facts}


def _is_own(live: LiveFact) -> bool:
    return isinstance(live.fact, LeaderElected) and live.fact.broker_id == RECOVERER


def recover_all(plans: Iterable[PartitionPlan], tools: RecoverTools) -> Operation[int]:
    """Recover every partition whose plan writes facts. Return the number of these partitions."""
    done = 0
    for plan in plans:
        if plan.writes:
            yield from recover_partition(plan, tools)
            done += 1
    return done


def recover_partition(plan: PartitionPlan, tools: RecoverTools) -> Operation[PartitionView]:
    """Append the partition's new term and the facts of the plan, except facts that are in the topic already.

    Raises Fenced if the topic has another value or another term, UnknownOutcome (resume later), and IllegalTransition
    if the partition differs from the plan in the end.
    """
    view, number = tools.view, tools.view.tier_partition(plan.partition)
    view.require_fresh(number, 0)
    standing = {live.key: live for live in view.facts(plan.partition)}
    elected = _own_term(plan, list(standing.values()))
    if elected is None:
        elected = elected_of(plan, FactId.of(tools.ids.uuid()), tools.clock.now_ms())
        yield "append leader-elected"
        view.wait_applied(number, _append(plan.partition, elected, tools), APPLY_TIMEOUT_S)
        # Q is read from the view, never from the acknowledgement
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

    The new term belongs to no broker and is in force from its own position on, so no agent may run. If an agent began a
    term in that time, its term fences later facts; the check at the end finds that. After an interruption, look for
    lost facts again and begin a new term. Raises Fenced, UnknownOutcome, IllegalTransition.
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
        if isinstance(fact, SegmentCopyStarted):  # its key may exist: `is_second_value` allows RECOVERER a second value
            fact = SegmentCopyStarted(replace(fact.attempt, broker_id=RECOVERER))
        yield step
        last = _append(partition, fact, tools)
    view.wait_applied(number, last, APPLY_TIMEOUT_S)
    return _added(now, lost, term, view)


def _added(before: PartitionView, lost: LostFacts, term: Term, view: TierView) -> PartitionView:
    """Return the partition. Check that the old and the added segments are readable, and that no other term began."""
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
    if plan.local_start is not None:  # the start may have moved since; the other facts use the earlier value
        ours = replace(ours, local_start=only.local_start)
    if len(terms) > 1 or ours != only:
        raise Fenced("a term of another plan stands in the topic: use a fresh one", partition=plan.partition)
    return only


def _append(partition: TopicIdPartition, fact: Fact, tools: RecoverTools) -> Position:
    """Append the fact and return its position. After an unknown outcome, wait until it appears or cannot land."""
    key, number = key_of(fact), tools.view.tier_partition(partition)
    try:
        return tools.topic.append(number, key, encode_fact(fact))
    except UnknownOutcome:
        deadline = tools.clock.monotonic() + UNKNOWN_LEADER_WAIT_S
        while tools.clock.monotonic() <= deadline:
            with suppress(Unavailable):  # a view that is behind shows the fact later
                tools.view.require_fresh(number, 0)
            landed = next((live for live in tools.view.facts(partition) if live.fact == fact), None)
            if landed is not None:
                return landed.position
            tools.clock.sleep(0.5)
        raise


def _checked(plan: PartitionPlan, term: Term, view: TierView) -> PartitionView:
    """Return the partition. Check that it equals the plan: no other process wrote, and no fact landed twice."""
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
