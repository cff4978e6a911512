"""Expiry in its order: log start, delete-started, grace, objects, delete-finished; whatever happens between them."""

from __future__ import annotations

import pytest

from tests.leader.expiry import (
    GRACE_MS,
    Expiry,
    check_expiry,
    finish,
    reasons,
    say_lease,
    say_order,
    two_are_gone,
)
from tests.leader.world import World, object_keys, run_with
from tierstate.rules.expire import next_removal
from tierstate.rules.leases import CLOCK_TOLERANCE_MS
from tierstate.rules.reasons import Reason, Why
from tierstate.runtime.listener import LogStartMoved, SegmentDeleteBegan, SegmentDeleted
from tierstate.runtime.operation import run
from tierstate.state.errors import (
    AccessDenied,
    StorageUnavailable,
    UnknownOutcome,
)
from tierstate.state.facts import OrderKind
from tierstate.state.retention import TopicRetention
from tierstate.state.segment import SegmentState

EXPIRE_STEPS = [
    "append log-start",
    "append delete-started",
    "append delete-started",
    "delete objects",
    "append delete-finished",
    "delete objects",
    "append delete-finished",
]
"""The steps for two segments that expire at once."""


def test_expired_segments_go_oldest_first_and_in_the_order_that_is_promised(two_expire: Expiry, world: World) -> None:
    for _ in two_expire.all_steps():
        check_expiry(world)
    assert two_expire.steps == EXPIRE_STEPS
    two_are_gone(world)
    assert reasons(world) == ["retention-size", "retention-size"]
    lines = [key.split("/")[2:5:2] for key in world.topic.keys()[-5:]]
    assert lines == [["log-start", "0"], *[["segment", "delete-started"]] * 2, *[["segment", "delete-finished"]] * 2]


def test_the_listener_gets_expiry_events(two_expire: Expiry, world: World) -> None:
    old = world.view().readable[:2]
    two_expire.work()
    events = two_expire.process.events
    assert [(e.log_start_offset, e.reason) for e in events if isinstance(e, LogStartMoved)] == [
        (world.bases[2], "retention-size")
    ]
    assert [(e.segment_id, e.offsets, e.reason) for e in events if isinstance(e, SegmentDeleteBegan)] == [
        (segment.segment_id, segment.offsets, "retention-size") for segment in old
    ]
    assert [(e.segment_id, e.object_bytes) for e in events if isinstance(e, SegmentDeleted)] == [
        (segment.segment_id, segment.object_bytes) for segment in old
    ]


def test_time_expires_everything_that_is_old_enough(world: World) -> None:
    """The records of the folder are in the future of this clock: they count from their copy."""
    process = world.process()
    session = process.begin()
    for _ in range(2):
        process.copy_next(session)
    world.clock.advance(100)
    for _ in range(3):
        process.copy_next(session)
    Expiry(process, session, TopicRetention(100_000, -1, -1, -1)).once()
    assert world.view().log_start == 0
    world.clock.advance(1)
    Expiry(process, session, TopicRetention(100_000, -1, -1, -1)).once()
    assert world.view().log_start == world.bases[2]
    assert reasons(world) == ["retention-time", "retention-time"]
    check_expiry(world)


def test_objects_stay_for_the_grace_but_are_no_segments(two_expire: Expiry, world: World) -> None:
    two_expire.once()
    assert len(world.objects()) == 15
    assert len(world.view().readable) == 3
    world.clock.advance(GRACE_MS / 1000 - 1)
    assert not two_expire.once()
    assert len(world.objects()) == 15
    world.clock.advance(1)
    assert two_expire.once()
    two_are_gone(world)


@pytest.mark.parametrize("step", range(len(EXPIRE_STEPS)))
def test_a_process_that_dies_before_any_step_of_expiry_is_finished_by_the_next(
    step: int, two_expire: Expiry, world: World
) -> None:
    for at, name in enumerate(two_expire.all_steps()):
        if at == step:
            assert name == EXPIRE_STEPS[step]
            break
    check_expiry(world)
    finish(world, two_expire.retention)
    two_are_gone(world)


def test_a_new_life_before_every_single_step_gets_through(two_expire: Expiry, world: World) -> None:
    """Every process takes one step and dies before its second one."""
    lives = 0
    while True:
        process = world.process()
        expiry = Expiry(process, process.begin(), two_expire.retention)
        lives += 1
        if sum(1 for _, _ in zip(expiry.all_steps(), range(2), strict=False)) == 0:
            break
        check_expiry(world)
    assert 2 < lives < 20
    two_are_gone(world)


@pytest.mark.parametrize("lands", [False, True])
@pytest.mark.parametrize("append", range(5))
def test_an_append_of_unknown_outcome_ends_the_term_and_the_next_one_finishes(
    append: int, lands: bool, two_expire: Expiry, world: World
) -> None:
    number = world.topic.appends + append

    def lose(at: int, key: str) -> None:
        if at == number:
            raise UnknownOutcome("no answer", key=key)

    setattr(world.topic, "after_append" if lands else "on_append", lose)
    with pytest.raises(UnknownOutcome):
        two_expire.work()
    assert two_expire.session.ended
    check_expiry(world)
    finish(world, two_expire.retention)
    two_are_gone(world)


DELETES = 6


def test_there_are_as_many_deletes_as_are_tried(two_expire: Expiry, world: World) -> None:
    before = world.store.writes
    two_expire.work()
    assert world.store.writes - before == DELETES


@pytest.mark.parametrize("error", [StorageUnavailable("no answer"), AccessDenied("no permission")])
@pytest.mark.parametrize("write", range(DELETES))
def test_a_store_that_fails_at_any_delete_leaves_facts_that_name_what_is_left(
    write: int, error: Exception, two_expire: Expiry, world: World
) -> None:
    number = world.store.writes + write

    def fail(operation: str, key: str, writes: int) -> None:
        if operation == "delete" and writes == number:
            raise error

    world.faults = fail
    with pytest.raises(type(error)):
        two_expire.work()
    check_expiry(world)
    assert two_expire.session.ended is None
    two_expire.work()
    two_are_gone(world)


@pytest.mark.parametrize("kind", range(3))
def test_a_store_that_keeps_an_object_it_deleted_is_not_believed(kind: int, two_expire: Expiry, world: World) -> None:
    segment = world.view().readable[0]
    kept = object_keys(segment)[kind]
    data = world.store.get(kept)

    def undelete(operation: str, key: str, writes: int) -> None:
        if operation == "head" and key == kept and key not in world.objects():
            world.store.put_if_absent(kept, data)

    world.faults = undelete
    with pytest.raises(StorageUnavailable, match=kept):
        two_expire.work()
    assert world.view().segments[segment.segment_id].state is SegmentState.DELETE_SEGMENT_STARTED
    world.faults = lambda operation, key, writes: None
    two_expire.work()
    two_are_gone(world)


def test_the_manifest_goes_first(two_expire: Expiry, world: World) -> None:
    manifest = object_keys(world.view().readable[0])[2]
    second = world.store.writes + 1

    def fail(operation: str, key: str, writes: int) -> None:
        if operation == "delete" and writes == second:
            raise StorageUnavailable("no answer")

    world.faults = fail
    with pytest.raises(StorageUnavailable):
        two_expire.work()
    assert manifest.endswith(".rsm-manifest")
    assert manifest not in world.objects()
    assert len(world.objects()) == 14


# --- leases ----------------------------------------------------------------------------------------------------------


def test_a_lease_keeps_objects_but_not_the_log_start(two_expire: Expiry, world: World) -> None:
    say_lease(world, 0, world.bases[1] - 1, seconds=1000.0)
    two_expire.work()
    view = check_expiry(world)
    assert view.log_start == world.bases[2]
    assert len(view.readable) == 3
    assert len(world.objects()) == 12, "the second segment is gone, the first is read"
    world.clock.advance(1000 + CLOCK_TOLERANCE_MS / 1000)
    two_expire.work()
    two_are_gone(world)


def test_a_lease_that_was_there_before_the_delete_keeps_the_objects_even_if_the_agent_saw_it_late(
    two_expire: Expiry, world: World
) -> None:
    """The step is decided, then a look at the newest view finds the lease below the delete-started."""
    act = two_expire.next_act()
    assert act is not None
    run(act)
    act = two_expire.next_act()
    assert act is not None
    run_with(act, "append delete-started", lambda: say_lease(world, 0, 0))
    world.clock.advance(GRACE_MS / 1000)
    waiting = next_removal(two_expire.session.view(max_age=0), world.clock.now_ms(), GRACE_MS)
    assert isinstance(waiting, Why)
    assert waiting.kind == Reason.LEASED


def test_a_forced_order_removes_what_is_leased(world: World) -> None:
    process = world.process()
    session = process.copy_all()
    say_lease(world, 0, world.end(), seconds=80_000)
    order = say_order(world, OrderKind.DELETE_RECORDS, world.bases[2])
    expiry = Expiry(process, session)
    expiry.work()
    assert len(world.objects()) == 15
    say_order(world, OrderKind.DELETE_RECORDS, order.before, force=True, number=2)
    expiry.work()
    two_are_gone(world)
