"""Sweeping: unfinished segments are deleted, once this very process has seen them so for the whole grace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.leader.expiry import Expiry, check_expiry, say, say_hold
from tests.leader.world import World, run_with
from tests.operations import run_until
from tests.rules.expiring import BOUNDS, TERM, build, doubtful, moved, view_of
from tierstate.leader.copier import copy_segment
from tierstate.leader.expirer import start_delete
from tierstate.leader.term import TermSession
from tierstate.rules.expire import LANDING_MS, StartDelete
from tierstate.rules.sweep import failed_attempt, next_sweep, only_copy, still_abandoned
from tierstate.rules.trim import doubt_of
from tierstate.runtime.operation import run
from tierstate.state.epochs import Lineage
from tierstate.state.errors import Fenced
from tierstate.state.facts import (
    DeleteReason,
    LiveFact,
    SegmentCopyFinished,
    SegmentCopyStarted,
)
from tierstate.state.ids import BrokerId, RemoteSegmentId
from tierstate.state.object_keys import ObjectKeys
from tierstate.state.offsets import Offset
from tierstate.state.partition_view import PartitionView
from tierstate.state.segment import SegmentState

GRACE_S = 86_400.0
ZOMBIE = build.term(0, 40)
"""A term that was never in force: its facts are fenced from the beginning."""
SEEN = {build.segment_id(number): 0.0 for number in range(10)}


def abandoned(number: int = 9, start: int = 300, end: int = 449, *, finished: bool = False) -> tuple[LiveFact, ...]:
    facts = (build.leader(40, 0, number=1040), build.started(60 + number, number, ZOMBIE, start, end))
    return (*facts, build.finished(80 + number, number, ZOMBIE, start, end)) if finished else facts


def sweep(view: PartitionView, **changes: Any) -> StartDelete | str:
    options: dict[str, Any] = {"bounds": BOUNDS, "first_seen": SEEN, "now_s": GRACE_S, "grace_s": GRACE_S}
    return next_sweep(view, **(options | changes))


# --- abandoned segments: the rule ------------------------------------------------------------------------------------


def test_an_abandoned_segment_goes_when_this_process_saw_it_so_for_the_whole_grace() -> None:
    view = view_of(*abandoned())
    decision = sweep(view)
    assert isinstance(decision, StartDelete)
    assert (decision.segment.segment_id, decision.reason) == (build.segment_id(9), DeleteReason.ABANDONED)
    sentence = f"1 abandoned segments stay; segment {build.segment_id(9)}: it is watched for another"
    assert sweep(view, now_s=GRACE_S - 1) == f"{sentence} 1 s"
    assert sweep(view, first_seen={}) == f"{sentence} 1 d"


def test_each_process_waits_by_itself_and_forgets_revived_segments() -> None:
    view = view_of(*abandoned(8), *abandoned(9)[1:])
    eight, nine = build.segment_id(8), build.segment_id(9)
    assert still_abandoned(view, {}, 7.0) == {eight: 7.0, nine: 7.0}
    assert still_abandoned(view, {eight: 3.0, build.segment_id(1): 1.0}, 7.0) == {eight: 3.0, nine: 7.0}
    assert still_abandoned(view_of(), {eight: 3.0}, 7.0) == {}


def test_readable_and_running_copies_are_not_swept() -> None:
    running = build.started(60, 9, TERM, 400, 449)
    assert sweep(view_of()) == "no segment is abandoned"
    assert sweep(view_of(running)) == "no segment is abandoned"


def test_an_abandoned_segment_that_must_stay_holds_up_no_other() -> None:
    view = view_of(*abandoned(8), *abandoned(9)[1:])
    decision = sweep(view, first_seen={build.segment_id(9): 0.0})
    assert isinstance(decision, StartDelete)
    assert decision.segment.segment_id == build.segment_id(9)


@pytest.mark.parametrize(
    ("start", "end", "local_start", "high_watermark", "nowhere"),
    [
        (0, 399, 450, 450, None),  # other copies have all of it
        (300, 449, 400, 450, None),  # the broker has the rest
        (300, 449, 401, 450, "400..449"),  # the broker's log begins above what is not copied
        (300, 449, 400, 449, "400..449"),  # or ends below it
        (300, 449, 450, 450, "400..449"),
        (400, 449, 0, 450, None),
    ],
)
def test_a_finished_copy_goes_only_when_its_offsets_are_elsewhere(
    start: int, end: int, local_start: int, high_watermark: int, nowhere: str | None
) -> None:
    bounds = replace(BOUNDS, local_start=Offset(local_start), high_watermark=Offset(high_watermark))
    decision = sweep(view_of(*abandoned(9, start, end, finished=True)), bounds=bounds)
    if nowhere is None:
        assert isinstance(decision, StartDelete)
    else:
        assert isinstance(decision, str)
        assert f"its offsets {nowhere} may be nowhere else" in decision
    unfinished = sweep(view_of(*abandoned(9, start, end)), bounds=bounds)
    assert isinstance(unfinished, type(decision)), "the fact that finished it may be lost"


def test_offsets_below_the_log_start_are_not_missed() -> None:
    bounds = replace(BOUNDS, local_start=Offset(450))
    facts = abandoned(9, 300, 449, finished=True)
    assert isinstance(sweep(view_of(*facts, log_start=449), bounds=bounds), str)
    assert isinstance(sweep(view_of(*facts, log_start=450), bounds=bounds), StartDelete)


def test_the_log_start_of_another_branch_takes_no_last_copy() -> None:
    bounds = replace(BOUNDS, local_start=Offset(450))
    for lineage, kept in ((Lineage.of((0, 300)), False), (Lineage.of((7, 300)), True)):
        copy = (build.started(50, 9, TERM, 300, 449), build.finished(51, 9, TERM, 300, 449, lineage))
        view = view_of(*copy, moved(70, 450, "retention-time"))
        assert (only_copy(view, view.segments[build.segment_id(9)], bounds) is not None) is kept


def test_copies_out_of_lineage_do_not_stand_in_for_a_finished_one() -> None:
    foreign = (build.started(50, 5, TERM, 400, 449), build.finished(51, 5, TERM, 400, 449, Lineage.of((7, 400))))
    bounds = replace(BOUNDS, local_start=Offset(450))
    view = view_of(*abandoned(9, 400, 449, finished=True), *foreign)
    assert "nowhere else" in (only_copy(view, view.segments[build.segment_id(9)], bounds) or "")


@pytest.mark.parametrize("doubt", ["held", "degraded", "contradiction", "lineage unknown", "no term has written"])
def test_nothing_is_swept_while_anything_is_doubtful(doubt: str) -> None:
    view = doubtful()[doubt]
    assert sweep(view) == f"{doubt_of(view)}"


def test_an_attempt_of_the_own_term_that_ended_goes_without_a_grace() -> None:
    running = build.started(60, 9, TERM, 400, 449)
    decision = failed_attempt(view_of(running), TERM, BOUNDS)
    assert isinstance(decision, StartDelete)
    assert (decision.segment.segment_id, decision.reason) == (build.segment_id(9), DeleteReason.FAILED_ATTEMPT)
    assert failed_attempt(view_of(running), build.term(2, 90), BOUNDS) is None
    assert failed_attempt(view_of(running), None, BOUNDS) is None
    assert failed_attempt(view_of(), TERM, BOUNDS) is None
    assert failed_attempt(view_of(*abandoned()), ZOMBIE, BOUNDS) is None, "abandoned ones are watched for the grace"


@pytest.mark.parametrize("doubt", ["held", "degraded", "contradiction", "lineage unknown"])
def test_an_own_attempt_stays_while_anything_is_doubtful(doubt: str) -> None:
    view = doubtful()[doubt]
    started = next(each for each in view_of(build.started(60, 9, TERM, 400, 449)).unsettled)
    assert failed_attempt(replace(view, unsettled=(started,)), TERM, BOUNDS) is None


# --- abandoned segments: the way out ---------------------------------------------------------------------------------


def die_in_a_copy(world: World, step: int) -> RemoteSegmentId:
    process = world.process()
    session = process.begin()
    run_until(copy_segment(session, process.candidate(session), process.tools), step)
    return world.view().unsettled[0].segment_id


@pytest.mark.parametrize("step", range(1, 5))
def test_remains_of_a_process_that_died_in_a_copy_are_swept(step: int, world: World) -> None:
    dead = die_in_a_copy(world, step)
    process = world.process()
    session = process.begin()
    seen = still_abandoned(session.view(), {}, world.clock.monotonic())
    assert list(seen) == [dead]
    for _ in range(23):
        world.clock.advance(3600)
        assert isinstance(look(session, seen), str)
    world.clock.advance(3600)
    decision = look(session, seen)
    assert isinstance(decision, StartDelete)
    run(start_delete(session, decision.segment, decision.reason, process.events.append))
    Expiry(process, session).work()
    assert world.objects() == set()
    assert world.view().segments[dead].state is SegmentState.DELETE_SEGMENT_FINISHED


@pytest.mark.parametrize("step", ["append delete-started", "delete objects", "append delete-finished"])
def test_a_process_that_dies_before_any_step_of_a_sweep_is_finished_by_the_next(step: str, world: World) -> None:
    dead = die_in_a_copy(world, 4)
    assert sweep_until(world, step)
    check_expiry(world)
    assert not sweep_until(world, None)
    assert world.view().segments[dead].state is SegmentState.DELETE_SEGMENT_FINISHED
    assert world.objects() == set()


def sweep_until(world: World, step: str | None) -> bool:
    """Run a process with a day of patience that dies before this step; return whether it came so far."""
    process = world.process()
    session = process.begin()
    seen = still_abandoned(session.view(), {}, world.clock.monotonic())
    world.clock.advance(GRACE_S)
    decision = look(session, seen)
    if isinstance(decision, StartDelete):
        for name in start_delete(session, decision.segment, decision.reason, process.events.append):
            if name == step:
                return True
    return any(name == step for name in Expiry(process, session).all_steps())


def look(session: TermSession, seen: dict[RemoteSegmentId, float]) -> StartDelete | str:
    return next_sweep(session.view(max_age=0), session.bounds(), seen, session.context.clock.monotonic(), GRACE_S)


def say_fenced_copy(world: World, old: TermSession, start: int, end: int) -> RemoteSegmentId:
    """Append a finished copy whose facts land when its term no longer rules."""
    key = ObjectKeys().base_key(world.name, world.topic_id, 0, start, build.segment_id(9))
    segment = replace(build.segment(9, old.term, start, end), partition=world.partition, object_key=key)
    attempt = replace(build.attempt(9, old.term, start, end), partition=world.partition, object_key=key)
    say(world, SegmentCopyStarted(attempt))
    say(world, SegmentCopyFinished(segment))
    return segment.segment_id


@pytest.mark.parametrize("lost", [False, True])
def test_a_finished_copy_whose_offsets_go_after_the_decision_is_not_condemned(lost: bool, world: World) -> None:
    process = world.process()
    old = process.begin()
    session = world.process().begin()
    decision = look(session, {say_fenced_copy(world, old, 0, world.bases[1] - 1): -GRACE_S})
    assert isinstance(decision, StartDelete), "the broker has all of it"
    act = start_delete(session, decision.segment, decision.reason, process.events.append)
    if lost:
        with pytest.raises(Fenced, match="not to be deleted"):
            run_with(act, "append delete-started", lambda: cut(world, world.bases[1]))
    else:
        run(act)
    state = world.view().segments[decision.segment.segment_id].state
    assert state is (SegmentState.ABANDONED if lost else SegmentState.DELETE_SEGMENT_STARTED)


def cut(world: World, before: int) -> None:
    world.broker.delete_records_on(BrokerId(1), world.name, 0, Offset(before))


def test_an_own_attempt_that_could_not_be_taken_back_is_taken_back_later(world: World) -> None:
    process = world.process()
    session = process.begin()
    act = copy_segment(session, process.candidate(session), process.tools)
    run_until(act, 3)
    decision = failed_attempt(session.view(max_age=0), session.term, session.bounds())
    assert isinstance(decision, StartDelete)
    run(start_delete(session, decision.segment, decision.reason, process.events.append))
    Expiry(process, session).work()
    assert world.objects() != set(), "a write may still land"
    world.clock.advance(LANDING_MS / 1000)
    Expiry(process, session).work()
    assert world.objects() == set()
    assert world.states() == [SegmentState.DELETE_SEGMENT_FINISHED]


@pytest.mark.parametrize("state", ["finished", "another term"])
def test_an_own_attempt_that_is_no_longer_one_is_not_taken_back(state: str, world: World) -> None:
    process = world.process()
    session = process.begin()
    act = copy_segment(session, process.candidate(session), process.tools)
    for _ in range(5):
        next(act)
    decision = failed_attempt(session.view(max_age=0), session.term, session.bounds())
    assert isinstance(decision, StartDelete)

    def finish() -> None:
        with pytest.raises(StopIteration):
            next(act)

    taken_back = start_delete(session, decision.segment, decision.reason, process.events.append)
    with pytest.raises(Fenced):
        run_with(taken_back, "append delete-started", finish if state == "finished" else world.process().begin)
    assert SegmentState.DELETE_SEGMENT_STARTED not in world.states()


@pytest.mark.parametrize("stop", ["hold", "term"])
def test_facts_that_land_after_the_decision_keep_a_segment(stop: str, world: World) -> None:
    dead = die_in_a_copy(world, 3)
    process = world.process()
    session = process.begin()
    decision = look(session, {dead: -GRACE_S})
    assert isinstance(decision, StartDelete)
    act = start_delete(session, decision.segment, decision.reason, process.events.append)
    happen: Callable[[], object] = world.process().begin if stop == "term" else lambda: say_hold(world)
    with pytest.raises(Fenced):
        run_with(act, "append delete-started", happen)
    assert world.view().segments[dead].state is SegmentState.ABANDONED
