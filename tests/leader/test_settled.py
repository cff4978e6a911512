"""Settled facts in the rules: nothing of a kept segment is deleted, and orders pass through an unknown lineage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.leader.test_sweeping import abandoned, sweep
from tests.rules.erasures import NOTHING, OLD, judge
from tests.rules.erasures import TERM as IN_FORCE
from tests.rules.expiring import BOUNDS, GRACE, LINEAGE, keep, moved, moves, order, view_of
from tests.rules.expiring import delete_started as condemned
from tests.rules.test_recovery import segment
from tests.state.conftest import NOW, Build
from tierstate.rules.erase import Erase
from tierstate.rules.expire import (
    AdvanceLogStart,
    RemoveObjects,
    StartDelete,
    kept_because,
    next_delete,
    next_removal,
)
from tierstate.rules.orders import CutLocal, next_cut, order_done
from tierstate.rules.reasons import Why
from tierstate.rules.recovery import ArchivedPartition, FoundSegment, plan_partition
from tierstate.rules.sweep import classify
from tierstate.state.epochs import Lineage
from tierstate.state.facts import ContradictionSettled, LineageSettled, LiveFact, OperatorOrder, OrderKind
from tierstate.state.ids import TopicId
from tierstate.state.lifecycle import contradicted_segment
from tierstate.state.object_keys import ObjectKeys
from tierstate.state.objects import ObjectInfo
from tierstate.state.offsets import Offset, TimestampMs
from tierstate.state.segment import SegmentState, Term

build = Build()
TERM = build.term(1, 0)


def settled(text: str, *, keep: bool = True, position: int = 95, number: int = 60) -> LiveFact:
    fact = ContradictionSettled(build.partition, build.fact_id(number), text, keep, "ops", NOW)
    return build.live(position, fact)


def about(number: int) -> str:
    """Return a contradiction of that segment."""
    return f"{build.started(1, number, TERM).key} at 1 and so on"


def told(position: int, lineage: Lineage) -> LiveFact:
    return build.live(position, LineageSettled(build.partition, build.fact_id(61), lineage, "ops", NOW))


# --- contradictions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [True, False])
def test_a_settled_contradiction_is_none_and_the_table_of_states_stands(keep: bool) -> None:
    lone = build.finished(5, 1, TERM)
    before = build.view(build.leader(0, 1), lone)
    (text,) = before.contradictions
    view = build.view(build.leader(0, 1), lone, settled(text, keep=keep))
    assert (view.contradictions, view.segments[build.segment_id(1)].state) == ((), SegmentState.ABANDONED)
    assert view.kept == (frozenset({build.segment_id(1)}) if keep else frozenset())
    again = build.view(build.leader(0, 1), build.finished(6, 1, TERM), settled(text, keep=keep))
    assert again.contradictions, "the same fact landed again: another text"
    assert again.kept == view.kept, "what is kept is kept all the same"


def test_a_text_names_its_segment_by_the_key_it_begins_with() -> None:
    assert contradicted_segment(about(3)) == build.segment_id(3)
    for text in ("", "second value of", "meta/topic at 7", f"{build.order(1, 2).key} at 7"):
        assert contradicted_segment(text) is None


def test_a_kept_segment_is_not_condemned_by_the_log_start() -> None:
    going = view_of(moved(81, 200, "retention-time"))
    decision = next_delete(going)
    assert isinstance(decision, StartDelete)
    assert decision.segment.segment_id == build.segment_id(0)
    kept = next_delete(view_of(moved(81, 200, "retention-time"), settled(about(0))))
    assert isinstance(kept, StartDelete)
    assert kept.segment.segment_id == build.segment_id(1)


def test_the_objects_of_a_kept_segment_are_not_removed_and_hold_up_no_other() -> None:
    facts = (condemned(80, 0), condemned(81, 1), moved(82, 200, "retention-time"))
    decision = next_removal(view_of(*facts), NOW, GRACE)
    assert isinstance(decision, RemoveObjects)
    assert decision.segment.segment_id == build.segment_id(0)
    view = view_of(*facts, settled(about(0)))
    kept = next_removal(view, NOW, GRACE)
    assert isinstance(kept, RemoveObjects)
    assert kept.segment.segment_id == build.segment_id(1)
    assert "a person keeps" in str(kept_because(view, view.segments[build.segment_id(0)], NOW, GRACE))


def test_a_kept_segment_is_not_swept() -> None:
    assert isinstance(sweep(view_of(*abandoned())), StartDelete)
    decision = sweep(view_of(*abandoned(), settled(about(9))))
    assert isinstance(decision, str)
    assert "a person keeps its objects" in decision


def test_an_object_of_a_kept_segment_is_no_orphan_even_where_a_fact_says_that_it_is_deleted() -> None:
    key = f"t-{build.partition.topic_id}/3/{0:020d}-{build.segment_id(1)}.log"
    gone = (build.delete_started(5, 1, TERM), build.delete_finished(6, 1, TERM))
    listed = [ObjectInfo(key, 1, TimestampMs(0))]
    for more, findings in (((), 1), ((settled(about(1)),), 0)):
        view = build.view(build.leader(0, 1), *gone, *more)
        assert len(classify(listed, ObjectKeys(), view, lambda partition, wanted: {})) == findings


@pytest.mark.parametrize("term", [IN_FORCE, OLD], ids=["deleted", "only fenced deletes"])
def test_facts_of_a_kept_segment_are_not_erased_and_what_settled_it_stays_as_long(term: Term) -> None:
    deleted = (build.delete_started(12, 1, term), build.delete_finished(13, 1, term))
    assert isinstance(judge(*deleted), Erase)
    assert judge(*deleted, settled(about(1), position=14)) == NOTHING
    alone = settled(about(1), position=14)
    assert judge(alone) == Erase((alone.key,), "settled and over")
    went_on = settled(about(1), keep=False, position=14)
    assert isinstance(judge(*deleted, went_on), Erase)


def test_a_forced_order_does_not_wait_for_what_a_person_keeps() -> None:
    ordered = order(50, OrderKind.DELETE_RECORDS, 100, force=True)
    assert isinstance(ordered.fact, OperatorOrder)
    assert not order_done(ordered.fact, view_of(ordered, log_start=100), Offset(100))
    assert order_done(ordered.fact, view_of(ordered, settled(about(0)), log_start=100), Offset(100))


def test_a_recovery_restores_what_was_settled_and_condemns_no_kept_segment() -> None:
    one = segment(1, 0, 9, (0, 0))
    key = f"{one.partition.topic_id}/0/segment/{one.segment_id}/copy-finished"
    fact = ContradictionSettled(one.partition, build.fact_id(1), f"{key} at 9", True, "ops", NOW)
    states = {one.segment_id: SegmentState.DELETE_SEGMENT_STARTED}
    parts = [FoundSegment(one, NOW, Offset(0), "c", TopicId("AAAAAAAAAAAAAAAAAAAAAg"))]
    for standing, deletes in (((), 1), ((fact,), 0), ((replace(fact, keep=False),), 1)):
        plan = plan_partition(one.partition, parts, ArchivedPartition(one.partition, states=states, standing=standing))
        assert (len(plan.deletes), plan.standing) == (deletes, standing)


# --- lineages --------------------------------------------------------------------------------------------------------


def test_an_order_passes_through_an_unknown_lineage_and_retention_does_not() -> None:
    young = build.leader(90, 2, lineage=Lineage.of((1, 250)))
    before = order(91, OrderKind.DELETE_RECORDS, 142)
    ordered = order(91, OrderKind.DELETE_RECORDS, 142, lineage=Lineage.of((1, 250)))
    assert view_of(young).lineage_unknown
    assert isinstance(moves(view_of(young, before), keep(ms=0)), Why), "it may have been of another log"
    assert isinstance(moves(view_of(young), keep(ms=0)), Why)
    decision = moves(view_of(young, ordered), keep(ms=0))
    assert isinstance(decision, AdvanceLogStart)
    assert decision.log_start == 142
    term = build.term(2, 90)
    reached = view_of(young, ordered, build.log_start(92, term, 142))
    assert reached.lineage_unknown
    assert next_cut(reached, replace(BOUNDS, local_start=Offset(0))) == CutLocal(Offset(142))


def test_a_settled_lineage_is_erased_once_the_term_carries_it_on_and_nothing_is_unknown_without_it() -> None:
    settled_lineage = told(12, LINEAGE)
    assert judge(settled_lineage) == Erase((settled_lineage.key,), "settled and over")
    assert judge(told(12, Lineage.of((0, 0), (9, 50)))) == NOTHING, "the term in force does not know it"
    copy = (build.started(13, 1, IN_FORCE), build.finished(14, 1, IN_FORCE, 0, 99, Lineage.of((1, 0))))
    begins = Lineage.of((2, 100))
    begun = (build.leader(10, 2, lineage=begins), build.log_start(11, build.term(2, 10), 0))
    anew = told(15, begins)
    assert str(judge(*copy, base=begun)).count("lineage unknown") == 1
    assert judge(*copy, anew, base=begun) == NOTHING, "it stands while that is there"
    trimmed = build.trim(16, OLD, 5)
    assert judge(*copy, anew, trimmed, base=begun) == Erase((trimmed.key,), "fenced or superseded"), "all goes on"
