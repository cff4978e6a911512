"""Write the tier-state topic anew from a plan: for each partition a new term, then what it says.

Nobody else may write meanwhile: the target is a fresh topic, and at the end each partition must mean what was planned
(a term that an agent began in between would fence what follows it, and is found there). What lands under a key is a
function of the plan and of the term, so a recovery that was interrupted finds its own term and goes on.
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
from ..schemas.codec import encode_fact
from ..state.errors import Fenced, IllegalTransition, InvalidRequest, Unavailable, UnknownOutcome
from ..state.facts import Fact, LeaderElected, LiveFact, SegmentCopyStarted, term_of
from ..state.ids import RECOVERER, FactId, TopicIdPartition
from ..state.keys import key_of
from ..state.offsets import Position
from ..state.partition_view import PartitionView
from ..state.segment import Term
from ..state.view import TierView
from .act import Act
from .term import APPLY_TIMEOUT_S, UNKNOWN_LEADER_WAIT_S


@dataclass(frozen=True, slots=True)
class RecoverTools:
    """The topic to fill, a view of it, and where time and ids come from."""

    topic: TierTopic
    view: TierView
    clock: Clock
    ids: IdSource


def check_target(topic: TierTopic, view: TierView, plans: Iterable[PartitionPlan], *, resume: bool) -> bool:
    """Nothing stands of the planned partitions or, to ``resume``, only what recover wrote of these plans.

    What others say of other partitions is theirs: topics of a cluster before this one come beside them. Facts by no
    term count as recover's when a plan restores them. Answers whether everything stands there already. Raises Fenced,
    InvalidRequest (it is to be resumed).
    """
    for number in range(topic.mapped_partitions):
        view.require_fresh(number, 0)
    planned = {plan.partition: plan for plan in plans}
    begun = 0
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
            begun += 1
    complete = all(_stands(plan, view.facts(plan.partition)) for plan in planned.values() if plan.writes)
    if begun and not resume and not complete:
        raise InvalidRequest("an interrupted recovery stands in the topic: go on with --resume", facts=begun)
    return bool(begun) and complete


def _stands(plan: PartitionPlan, facts: list[LiveFact]) -> bool:
    """Whether everything that the plan writes is there. Raises Fenced for a term of another plan."""
    elected = _own_term(plan, facts)
    if elected is None:
        return False
    at = next(live.position for live in facts if live.fact == elected)
    wanted = {key_of(fact) for _, fact in facts_of(plan, elected, Term(elected.epoch, at, elected.id))}
    return wanted <= {live.key for live in facts}


def _is_own(live: LiveFact) -> bool:
    return isinstance(live.fact, LeaderElected) and live.fact.broker_id == RECOVERER


def recover_all(plans: Iterable[PartitionPlan], tools: RecoverTools) -> Act[int]:
    """Every partition that has something to write; returns how many."""
    done = 0
    for plan in plans:
        if plan.writes:
            yield from recover_partition(plan, tools)
            done += 1
    return done


def recover_partition(plan: PartitionPlan, tools: RecoverTools) -> Act[PartitionView]:
    """Its new term and everything after it; what already stands is not written again.

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
        there = standing.get(key_of(fact))
        if there is None:
            yield step
            last = _append(plan.partition, fact, tools)
        elif there.fact != fact:
            raise Fenced("another value stands under a key of this plan: use a fresh topic", key=there.key)
    if last is not None:
        view.wait_applied(number, last, APPLY_TIMEOUT_S)
    return _checked(plan, term, view)


def add_lost_facts(lost: LostFacts, tools: RecoverTools) -> Act[PartitionView]:
    """Add the facts of segments that are whole in the bucket to a partition of which facts stand.

    A term by no broker rules from its own position on, so no agent may run: one that began its own meanwhile would
    fence what follows, and is found at the end. Interrupted, it is begun again from a new look, in a term of its own.
    Raises Fenced, UnknownOutcome, IllegalTransition.
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
    added = replace(
        plan,
        restored=lost.segments,
        deletes=(),
        standing=(),
        log_start=None if plan.log_start == now.log_start else plan.log_start,
    )
    last = Position(-1)
    for step, fact in facts_of(added, elected, term):
        if isinstance(fact, SegmentCopyStarted):  # one may stand, whose end was lost: see `is_second_value`
            fact = SegmentCopyStarted(replace(fact.attempt, broker_id=RECOVERER))
        yield step
        last = _append(partition, fact, tools)
    view.wait_applied(number, last, APPLY_TIMEOUT_S)
    return _added(now, lost, term, view)


def _added(before: PartitionView, lost: LostFacts, term: Term, view: TierView) -> PartitionView:
    """What was readable is, and so are the lost segments: nobody wrote in between."""
    now = view.partition(lost.plan.partition)
    if now.term != term:
        raise Fenced("another term began meanwhile: an agent runs", partition=now.partition, ruling=now.term)
    wanted = {*before.readable, *(replace(each.segment, term=term) for each in lost.segments)}
    if set(now.readable) != wanted or now.contradictions:
        raise IllegalTransition(
            "the partition does not mean what was planned: look again",
            partition=now.partition,
            planned=len(wanted),
            readable=len(now.readable),
            contradictions="; ".join(now.contradictions) or None,
        )
    return now


def _own_term(plan: PartitionPlan, standing: list[LiveFact]) -> LeaderElected | None:
    begun = [live.fact for live in standing if isinstance(live.fact, LeaderElected)]
    if not begun:
        return None
    only = begun[0]
    ours = elected_of(plan, only.id, only.elected_at)
    if plan.local_start is not None:  # it may have moved since; what was said then is what the rest is made of
        ours = replace(ours, local_start=only.local_start)
    if len(begun) > 1 or ours != only:
        raise Fenced("a term of another plan stands in the topic: use a fresh one", partition=plan.partition)
    return only


def _append(partition: TopicIdPartition, fact: Fact, tools: RecoverTools) -> Position:
    """Append; of an unknown outcome wait until it appears, or until it no longer can."""
    key, number = key_of(fact), tools.view.tier_partition(partition)
    try:
        return tools.topic.append(number, key, encode_fact(fact))
    except UnknownOutcome:
        deadline = tools.clock.monotonic() + UNKNOWN_LEADER_WAIT_S
        while tools.clock.monotonic() <= deadline:
            with suppress(Unavailable):  # a view that is behind shows it later
                tools.view.require_fresh(number, 0)
            found = next((live for live in tools.view.facts(partition) if live.fact == fact), None)
            if found is not None:
                return found.position
            tools.clock.sleep(0.5)
        raise


def _checked(plan: PartitionPlan, term: Term, view: TierView) -> PartitionView:
    """The partition means what was planned: nobody wrote in between, nothing landed twice."""
    now = view.partition(plan.partition)
    if now.term != term:
        raise Fenced("another term began meanwhile: an agent runs", partition=plan.partition, ruling=now.term)
    wanted = {replace(each.segment, term=term) for each in plan.restored}
    if set(now.readable) != wanted or now.log_start != plan.log_start or now.contradictions or now.degraded:
        raise IllegalTransition(
            "the recovered partition does not mean what was planned: use a fresh topic",
            partition=plan.partition,
            planned=len(wanted),
            readable=len(now.readable),
            contradictions="; ".join(now.contradictions) or None,
        )
    return now
