"""Rebuild the tier-state topic from a plan: append a new term for each partition, then the facts of the plan.

No other process may write at the same time: the target is a fresh topic. At the end, each partition is compared with
the plan. (If an agent began a term in that time, its term fences later facts; the comparison finds that.) The value of
a key depends only on the plan and the term, so an interrupted recovery can continue.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..broker.tier_topic import TierTopic
from ..rules.lost_facts import LostFacts
from ..rules.recovery import FoundSegment, PartitionPlan, elected_of, facts_of
from ..runtime.clock import Clock
from ..runtime.id_source import IdSource
from ..runtime.operation import Operation
from ..schemas.codec import encode_fact
from ..state.errors import Fenced, IllegalTransition, InvalidRequest
from ..state.facts import LeaderElected, LiveFact, SegmentCopyStarted, term_of
from ..state.ids import RECOVERER, FactId
from ..state.keys import key_of
from ..state.partition_view import PartitionView
from ..state.segment import RemoteSegment, Term
from ..state.view import TierView
from .term import APPLY_TIMEOUT_S, append_leader, append_once


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
    elected = _own_term(plan, view.facts(plan.partition))
    if elected is None:
        elected = elected_of(plan, FactId.of(tools.ids.uuid()), tools.clock.now_ms())
        yield "append leader-elected"
        append_leader(tools.topic, view, tools.clock, elected)
    standing = {live.key: live for live in view.facts(plan.partition)}
    term = Term(elected.epoch, standing[key_of(elected)].position, elected.id)
    last = term.position
    for step, fact in facts_of(plan, elected, term):
        existing = standing.get(key_of(fact))
        if existing is None:
            yield step
            last = append_once(tools.topic, view, tools.clock, plan.partition, fact, encode_fact(fact))
        elif existing.fact != fact:
            raise Fenced("another value stands under a key of this plan: use a fresh topic", key=existing.key)
    view.wait_applied(number, last, APPLY_TIMEOUT_S)
    now = view.partition(plan.partition)
    wrong = now.log_start != plan.log_start or bool(now.degraded)
    problem = "the recovered partition does not mean what was planned: use a fresh topic"
    return _checked(now, term, plan.restored, (), problem, wrong=wrong)


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
    term = append_leader(tools.topic, view, tools.clock, elected)
    written = {live.key for live in view.facts(partition)}
    addition = replace(
        plan,
        restored=lost.segments,
        deletes=(),
        standing=tuple(each for each in plan.standing if key_of(each) not in written),
        log_start=None if plan.log_start == now.log_start else plan.log_start,
    )
    last = term.position
    for step, fact in facts_of(addition, elected, term):
        if isinstance(fact, SegmentCopyStarted):  # its key may exist: `is_second_value` allows RECOVERER a second value
            fact = SegmentCopyStarted(replace(fact.attempt, broker_id=RECOVERER))
        yield step
        last = append_once(tools.topic, view, tools.clock, plan.partition, fact, encode_fact(fact))
    view.wait_applied(number, last, APPLY_TIMEOUT_S)
    problem = "the partition does not mean what was planned: look again"
    return _checked(view.partition(partition), term, lost.segments, now.readable, problem)


def _checked(
    now: PartitionView,
    term: Term,
    written: Iterable[FoundSegment],
    before: Iterable[RemoteSegment],
    problem: str,
    *,
    wrong: bool = False,
) -> PartitionView:
    """Return ``now``. Check that the old and the written segments are readable, that nothing else is, and that no other
    term began: no other process wrote, and no fact landed twice.
    """
    if now.term != term:
        raise Fenced("another term began meanwhile: an agent runs", partition=now.partition, ruling=now.term)
    expected = {*before, *(replace(each.segment, term=term) for each in written)}
    if set(now.readable) != expected or wrong or now.contradictions:
        raise IllegalTransition(
            problem,
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
