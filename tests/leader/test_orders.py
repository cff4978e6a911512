"""The time when an order reaches the broker's log, and when it is done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.leader.expiry import Expiry, say_lease, say_order
from tests.leader.world import World
from tests.rules.expiring import BOUNDS, build, delete_started, doubtful, moved, order, view_of
from tests.state.conftest import NOW
from tierstate.rules.orders import CutLocal, is_forced, next_cut, order_done
from tierstate.state.epochs import Lineage
from tierstate.state.facts import LiveFact, OperatorOrder, OrderKind, SegmentDeleteFinished
from tierstate.state.offsets import Offset
from tierstate.state.segment import SegmentState

AT_ZERO = replace(BOUNDS, local_start=Offset(0))


def delete_finished(position: int, number: int) -> LiveFact:
    subject = build.segment(number, build.term(1, 0), 100 * number, 100 * number + 99)
    return build.live(position, SegmentDeleteFinished(subject, build.term(1, 0), position, NOW))


def fact_of(live: LiveFact) -> OperatorOrder:
    assert isinstance(live.fact, OperatorOrder)
    return live.fact


def test_the_brokers_log_is_cut_once_the_log_start_is_accepted() -> None:
    ordered = order(50, OrderKind.DELETE_RECORDS, 142)
    assert next_cut(view_of(), AT_ZERO) is None
    assert next_cut(view_of(ordered), AT_ZERO) is None
    view = view_of(ordered, moved(51, 142, "operator-order"))
    assert next_cut(view, AT_ZERO) == CutLocal(Offset(142))
    assert next_cut(view, replace(AT_ZERO, local_start=Offset(141))) == CutLocal(Offset(142))
    assert next_cut(view, replace(AT_ZERO, local_start=Offset(142))) is None


def test_retention_and_giving_up_the_remote_tier_never_cut_the_brokers_log() -> None:
    view = view_of(order(50, OrderKind.DISABLE_DELETE), moved(51, 300, "retention-time"))
    assert next_cut(view, AT_ZERO) is None


def test_an_order_above_the_high_watermark_does_not_hide_a_lower_one() -> None:
    orders = (order(50, OrderKind.DELETE_RECORDS, 142), order(51, OrderKind.DELETE_RECORDS, 451, number=8))
    view = view_of(*orders, moved(52, 142, "operator-order"))
    assert next_cut(view, AT_ZERO) == CutLocal(Offset(142))


@pytest.mark.parametrize("doubt", ["held", "degraded", "contradiction"])
def test_nothing_is_cut_while_anything_is_doubtful(doubt: str) -> None:
    ordered = fact_of(order(50, OrderKind.DELETE_RECORDS, 142))
    sure, view = (replace(doubtful()[each], orders=(ordered,)) for each in ("none", doubt))
    assert next_cut(sure, AT_ZERO) == CutLocal(Offset(142))
    assert next_cut(view, AT_ZERO) is None


@pytest.mark.parametrize(
    ("log_start", "local_start", "done"), [(142, 142, True), (141, 142, False), (142, 141, False), (400, 400, True)]
)
def test_an_order_is_done_when_both_tiers_begin_at_it(log_start: int, local_start: int, done: bool) -> None:
    ordered = order(50, OrderKind.DELETE_RECORDS, 142)
    view = view_of(ordered, log_start=log_start)
    assert order_done(fact_of(ordered), view, Offset(local_start)) == done


def test_an_order_is_done_where_it_holds_and_not_carried_on_when_its_branch_comes_back() -> None:
    ordered = order(50, OrderKind.DELETE_RECORDS, 142)
    anew = build.leader(51, 2, lineage=Lineage.of((2, 0)))
    view = view_of(ordered, anew)
    assert view.log_start == 0
    assert next_cut(view, AT_ZERO) is None
    assert order_done(fact_of(ordered), view, Offset(0))
    forked = view_of(ordered, build.leader(51, 2, lineage=Lineage.of((0, 0), (2, 100))))
    assert not order_done(fact_of(ordered), forked, Offset(0))
    assert order_done(fact_of(ordered), view_of(ordered, log_start=142), Offset(142))


def test_force_overrides_leases_on_what_is_ordered_and_no_further() -> None:
    ordered = order(50, OrderKind.DELETE_RECORDS, 142, force=True)
    assert is_forced(view_of(ordered), Offset(141))
    assert not is_forced(view_of(ordered), Offset(142))
    assert not is_forced(view_of(ordered, build.leader(51, 2, lineage=Lineage.of((0, 0), (2, 100)))), Offset(141))


@pytest.mark.parametrize("kind", [kind for kind in OrderKind if kind is not OrderKind.DELETE_RECORDS])
def test_pause_resume_and_disable_are_never_done(kind: OrderKind) -> None:
    ordered = order(50, kind)
    assert not order_done(fact_of(ordered), view_of(ordered, log_start=400), Offset(400))


def test_a_forced_order_is_done_when_no_object_below_it_is_left() -> None:
    ordered = order(50, OrderKind.DELETE_RECORDS, 200, force=True)
    readable = view_of(ordered, log_start=200)
    assert not order_done(fact_of(ordered), readable, Offset(200))
    condemned = (delete_started(51, 0), delete_started(52, 1))
    assert not order_done(fact_of(ordered), view_of(ordered, *condemned, log_start=200), Offset(200))
    one = view_of(ordered, *condemned, delete_finished(53, 0), log_start=200)
    assert not order_done(fact_of(ordered), one, Offset(200))
    both = view_of(ordered, *condemned, delete_finished(53, 0), delete_finished(54, 1), log_start=200)
    assert order_done(fact_of(ordered), both, Offset(200))


def test_a_forced_order_waits_for_abandoned_copies_too() -> None:
    ordered = order(50, OrderKind.DELETE_RECORDS, 200, force=True)
    gone = (delete_finished(53, 0), delete_finished(54, 1), delete_started(51, 0), delete_started(52, 1))
    abandoned = build.started(60, 9, build.term(0, 40), 0, 99)
    leader = build.leader(40, 0, number=1040)
    view = view_of(ordered, *gone, leader, abandoned, log_start=200)
    assert view.segments[build.segment_id(9)].state is SegmentState.ABANDONED
    assert not order_done(fact_of(ordered), view, Offset(200))
    assert order_done(fact_of(ordered), view_of(ordered, *gone, leader, log_start=200), Offset(200))


def test_an_order_is_carried_out_to_the_end_and_then_done(world: World) -> None:
    process = world.process()
    expiry = Expiry(process, process.copy_all())
    say_lease(world, 0, world.end(), seconds=80_000)
    ordered = say_order(world, OrderKind.DELETE_RECORDS, world.bases[2], force=True)
    done = []
    for step in expiry.all_steps():
        done.append((step, order_done(ordered, world.view(), Offset(world.local_start()))))
    assert {is_done for _, is_done in done} == {False}, "not before its last step"
    assert order_done(ordered, world.view(), Offset(world.local_start()))
