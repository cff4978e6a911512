"""Orders carried out: delete-records in both tiers, and the end of the remote tier."""

from __future__ import annotations

from typing import Any

import pytest

from tests.leader.expiry import (
    FOREVER,
    Expiry,
    check_expiry,
    finish,
    reasons,
    say_order,
    two_are_gone,
    unchanged,
)
from tests.leader.world import World
from tierstate.leader.expirer import advance_log_start, delete_records_order
from tierstate.runtime.listener import LocalTrimmed
from tierstate.runtime.operation import Operation, run
from tierstate.state.errors import (
    Fenced,
    TimedOut,
)
from tierstate.state.facts import LogStartAdvanced, OrderKind
from tierstate.state.keys import key_of
from tierstate.state.offsets import Offset


def test_delete_records_cuts_both_tiers_at_the_exact_offset(world: World) -> None:
    process = world.process()
    session = process.copy_all()
    say_order(world, OrderKind.DELETE_RECORDS, world.bases[2] + 7)
    expiry = Expiry(process, session)
    for _ in expiry.all_steps():
        check_expiry(world)
    view = check_expiry(world)
    assert view.log_start == world.local_start() == world.bases[2] + 7
    assert [segment.offsets.start for segment in view.readable] == world.rolled[2:], "the segment it cuts stays whole"
    assert reasons(world) == ["operator-order", "operator-order"]
    assert expiry.steps[0] == "append log-start"
    assert expiry.steps.index("delete-records") < expiry.steps.index("delete objects")
    assert [e.offset for e in process.events if isinstance(e, LocalTrimmed)] == [world.bases[2] + 7]


@pytest.mark.parametrize("step", range(8))
def test_a_process_that_dies_before_any_step_of_an_order_is_finished_by_the_next(step: int, world: World) -> None:
    process = world.process()
    session = process.copy_all()
    say_order(world, OrderKind.DELETE_RECORDS, world.bases[2])
    for at, _ in enumerate(Expiry(process, session).all_steps()):
        if at == step:
            break
    else:
        raise AssertionError("there are fewer steps")
    check_expiry(world)
    finish(world, FOREVER)
    two_are_gone(world)
    assert world.local_start() == world.bases[2]


def test_the_brokers_log_is_not_cut_before_the_log_start_is_accepted(world: World) -> None:
    process = world.process()
    session = process.copy_all()
    say_order(world, OrderKind.DELETE_RECORDS, world.bases[2])
    with pytest.raises(Fenced, match="no order asks for this cut"):
        run(delete_records_order(session, Offset(world.bases[2]), process.events.append))
    assert world.local_start() == 0


def test_an_order_holds_on_the_branch_of_its_term_where_no_segment_is_outside(world: World) -> None:
    process = world.process()
    session = process.copy_all()
    order = say_order(world, OrderKind.DELETE_RECORDS, world.bases[2])
    run(advance_log_start(session, Offset(world.bases[2]), f"operator-order {order.id}", process.events.append))
    facts = [live.fact for live in process.view.facts(world.partition) if isinstance(live.fact, LogStartAdvanced)]
    (accepted,) = [fact for fact in facts if fact.log_start == world.bases[2]]
    assert accepted.lineage.entries, "it would take the last copy of records on a branch that it was not meant for"


def test_nothing_is_cut_without_an_order(two_expire: Expiry, world: World) -> None:
    two_expire.work()
    with pytest.raises(Fenced, match="no order asks for this cut"):
        run(delete_records_order(two_expire.session, Offset(world.bases[2]), two_expire.process.events.append))
    assert world.local_start() == 0


@pytest.mark.parametrize("step", ["append log-start", "delete-records"])
def test_an_order_that_is_taken_back_in_time_is_not_carried_out(step: str, world: World) -> None:
    process = world.process()
    expiry = Expiry(process, process.copy_all())
    order = say_order(world, OrderKind.DELETE_RECORDS, world.bases[2])
    if step == "delete-records":
        run(
            advance_log_start(
                expiry.session, Offset(world.bases[2]), f"operator-order {order.id}", process.events.append
            )
        )
        act: Operation[Any] = delete_records_order(expiry.session, Offset(world.bases[2]), process.events.append)
    else:
        decision = expiry.next_act()
        assert decision is not None
        act = decision
    unchanged(world, act, step, lambda: world.topic.append(0, key_of(order), None))


def test_a_lost_answer_to_an_order_is_looked_up_in_the_bounds(world: World) -> None:
    process = world.process()
    expiry = Expiry(process, process.copy_all())
    say_order(world, OrderKind.DELETE_RECORDS, world.bases[2])
    world.broker.lose_answers()
    expiry.work()
    assert world.local_start() == world.bases[2]


def test_a_request_for_an_order_that_was_lost_on_its_way_is_an_error(world: World) -> None:
    process = world.process()
    expiry = Expiry(process, process.copy_all())
    order = say_order(world, OrderKind.DELETE_RECORDS, world.bases[2])
    run(advance_log_start(expiry.session, Offset(world.bases[2]), f"operator-order {order.id}", process.events.append))
    act = delete_records_order(expiry.session, Offset(world.bases[2]), process.events.append)
    cut = world.broker.delete_records_on

    def swallow(*asked: object) -> Offset:
        raise TimedOut("DeleteRecords was sent, its outcome is unknown")

    vars(world.broker)["delete_records_on"] = swallow
    with pytest.raises(TimedOut):
        run(act)
    assert world.local_start() == 0
    vars(world.broker)["delete_records_on"] = cut
    expiry.work()
    assert world.local_start() == world.bases[2]


def test_giving_up_the_remote_tier_removes_what_the_broker_no_longer_has(world: World) -> None:
    process = world.process()
    process.work()
    assert world.local_start() == world.bases[-1]
    say_order(world, OrderKind.DISABLE_DELETE)
    Expiry(process, process.begin()).work()
    view = check_expiry(world)
    assert view.log_start == world.local_start()
    assert view.readable == ()
    assert world.objects() == set()


def test_a_disable_order_that_was_superseded_in_time_gives_nothing_up(world: World) -> None:
    process = world.process()
    process.work()
    expiry = Expiry(process, process.begin())
    say_order(world, OrderKind.DISABLE_DELETE)
    act = expiry.next_act()
    assert act is not None
    unchanged(world, act, "append log-start", lambda: say_order(world, OrderKind.RESUME, number=2))
