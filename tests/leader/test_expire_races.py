"""Events between the decision and a step of expiry: every operation looks again, and stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.leader.expiry import (
    GRACE_MS,
    Expiry,
    check_expiry,
    say_hold,
    say_order,
    unchanged,
)
from tests.leader.world import World, run_with
from tests.operations import run_until
from tierstate.leader.expirer import advance_log_start, delete_records_order, remove_objects, start_delete
from tierstate.leader.term import SAFE_FOR_S, TermSession
from tierstate.rules.expire import RemoveObjects, StartDelete, next_delete, next_removal
from tierstate.runtime.operation import Operation, run
from tierstate.schemas.codec import encode_fact
from tierstate.state.errors import (
    BrokerUnavailable,
    Fenced,
)
from tierstate.state.facts import DeleteReason, OrderKind, SegmentDeleteFinished, SegmentDeleteStarted
from tierstate.state.keys import key_of
from tierstate.state.offsets import Offset
from tierstate.state.partition_view import SegmentMeaning
from tierstate.state.segment import SegmentState


def condemned(expiry: Expiry) -> SegmentMeaning:
    """Return the first segment that waits for its objects to be deleted, after its grace."""
    expiry.once()
    expiry.world.clock.advance(GRACE_MS / 1000)
    decision = next_removal(expiry.session.view(max_age=0), expiry.session.now(), GRACE_MS)
    assert isinstance(decision, RemoveObjects)
    return decision.segment


def acts(expiry: Expiry) -> dict[str, Callable[[], Operation[Any]]]:
    """Return the operations by the name of their first step, each with everything before it done."""
    session, world, events = expiry.session, expiry.world, expiry.process.events.append

    def move() -> Operation[Any]:
        return advance_log_start(session, Offset(world.bases[2]), "retention-size", events)

    def start() -> Operation[Any]:
        run(move())
        decision = next_delete(session.view(max_age=0))
        assert isinstance(decision, StartDelete)
        return start_delete(session, decision.segment, decision.reason, events)

    def remove() -> Operation[Any]:
        return remove_objects(session, world.store, condemned(expiry), GRACE_MS, events)

    def cut() -> Operation[Any]:
        order = say_order(world, OrderKind.DELETE_RECORDS, world.bases[1])
        run(advance_log_start(session, Offset(world.bases[1]), f"operator-order {order.id}", events))
        return delete_records_order(session, Offset(world.bases[1]), events)

    return {
        "append log-start": move,
        "append delete-started": start,
        "delete objects": remove,
        "delete-records": cut,
    }


ACTS = ["append log-start", "append delete-started", "delete objects", "delete-records"]


@pytest.mark.parametrize("step", ACTS)
def test_a_hold_that_lands_after_the_decision_stops_every_act(step: str, two_expire: Expiry, world: World) -> None:
    unchanged(world, acts(two_expire)[step](), step, lambda: say_hold(world))


@pytest.mark.parametrize("step", ACTS)
def test_a_pause_that_lands_after_the_decision_stops_every_act(step: str, two_expire: Expiry, world: World) -> None:
    unchanged(world, acts(two_expire)[step](), step, lambda: say_order(world, OrderKind.PAUSE, number=9))


@pytest.mark.parametrize("step", ACTS)
def test_a_tier_state_topic_that_drifts_after_the_decision_stops_every_act(
    step: str, two_expire: Expiry, world: World
) -> None:
    def drift() -> None:
        world.clock.advance(SAFE_FOR_S)
        world.topic.drift.append("cleanup.policy is delete")

    unchanged(world, acts(two_expire)[step](), step, drift)


@pytest.mark.parametrize("step", ACTS)
def test_a_later_term_stops_every_act(step: str, two_expire: Expiry, world: World) -> None:
    other = world.process()
    unchanged(world, acts(two_expire)[step](), step, other.begin)
    assert two_expire.session.ended


@pytest.mark.parametrize("step", ["append log-start", "delete objects", "delete-records"])
def test_leadership_that_moved_away_unnoticed_stops_what_cannot_be_taken_back(
    step: str, two_expire: Expiry, world: World
) -> None:
    """Only the broker itself can tell: another process has written nothing yet."""
    act = acts(two_expire)[step]()
    objects, log_start = world.objects(), world.view().log_start

    def move_away() -> None:
        world.broker.elect(world.name, 0, 2)

    with pytest.raises((Fenced, BrokerUnavailable)):
        run_with(act, step, move_away)
    assert (world.objects(), world.view().log_start) == (objects, log_start)


@pytest.mark.parametrize("step", ["append log-start", "delete objects", "delete-records"])
def test_a_checkpoint_that_moved_on_while_the_broker_still_answers_stops_them_too(
    step: str, two_expire: Expiry, world: World
) -> None:
    later = (*world.checkpoint(), (7, world.end()))
    unchanged(world, acts(two_expire)[step](), step, lambda: world.write_checkpoint(*later))


def test_a_log_start_that_another_agent_moved_further_is_not_moved_back(two_expire: Expiry, world: World) -> None:
    run(
        advance_log_start(
            two_expire.session, Offset(world.bases[3]), "retention-time", two_expire.process.events.append
        )
    )
    appends_before = world.topic.appends
    run(
        advance_log_start(
            two_expire.session, Offset(world.bases[2]), "retention-size", two_expire.process.events.append
        )
    )
    assert world.topic.appends == appends_before
    assert world.view().log_start == world.bases[3]


def test_a_log_that_ends_below_the_new_log_start_keeps_it(two_expire: Expiry, world: World) -> None:
    act = advance_log_start(
        two_expire.session, Offset(world.end() + 1), "retention-size", two_expire.process.events.append
    )
    with pytest.raises(Fenced, match="ends below"):
        run(act)
    assert world.view().log_start == 0


def test_a_segment_above_the_log_start_is_never_condemned(two_expire: Expiry, world: World) -> None:
    session = two_expire.session
    newest = session.view().segments[world.view().readable[-1].segment_id]
    for reason in DeleteReason:
        with pytest.raises(Fenced, match="not to be deleted"):
            run(start_delete(session, newest, reason, two_expire.process.events.append))
    assert set(world.states()) == {SegmentState.COPY_SEGMENT_FINISHED}


def test_objects_of_a_readable_segment_are_never_removed(two_expire: Expiry, world: World) -> None:
    session = two_expire.session
    for segment in session.view().segments.values():
        with pytest.raises(Fenced, match="COPY_SEGMENT_FINISHED"):
            run(remove_objects(session, world.store, segment, 0, two_expire.process.events.append))
    assert len(world.objects()) == 15


def test_objects_are_not_removed_before_the_grace_is_over(two_expire: Expiry, world: World) -> None:
    two_expire.once()
    waiting = world.view().unsettled[0]
    with pytest.raises(Fenced, match="grace"):
        run(remove_objects(two_expire.session, world.store, waiting, GRACE_MS, two_expire.process.events.append))
    assert len(world.objects()) == 15


# --- zombies ---------------------------------------------------------------------------------------------------------


def say_late(world: World, session: TermSession, *facts: SegmentDeleteStarted | SegmentDeleteFinished) -> None:
    """Append facts that a fenced agent had in flight."""
    for fact in facts:
        world.topic.append(0, key_of(fact), encode_fact(fact))


def test_segments_that_a_fenced_term_condemns_stay_readable(two_expire: Expiry, world: World) -> None:
    zombie, segment = two_expire.session, world.view().readable[0]
    process = world.process()
    session = process.begin()
    say_late(
        world,
        zombie,
        SegmentDeleteStarted(segment, zombie.term, 1, DeleteReason.RETENTION_SIZE, world.clock.now_ms()),
        SegmentDeleteFinished(segment, zombie.term, 2, world.clock.now_ms()),
    )
    assert len(check_expiry(world).readable) == 5
    world.clock.advance(10 * GRACE_MS)
    assert not Expiry(process, session).once()
    assert len(world.objects()) == 15


def test_a_zombie_that_wakes_up_to_remove_objects_removes_none(two_expire: Expiry, world: World) -> None:
    act = remove_objects(
        two_expire.session, world.store, condemned(two_expire), GRACE_MS, two_expire.process.events.append
    )
    next(act)
    other = world.process()
    other.begin()
    with pytest.raises(Fenced):
        next(act)
    assert len(world.objects()) == 15


def test_no_act_takes_a_step_that_it_did_not_name(two_expire: Expiry, world: World) -> None:
    for step, make in acts(two_expire).items():
        act = make()
        appends_before, writes, start = world.topic.appends, world.store.writes, world.local_start()
        assert run_until(act, 0) == []
        assert (world.topic.appends, world.store.writes, world.local_start()) == (appends_before, writes, start), step
