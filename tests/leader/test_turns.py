"""Kinds of operations take turns: none starves, a failing one waits alone, and an order stops some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.leader.expiry import say_order
from tests.leader.turns import Busy, Desk, abandoned, erasable_left, failures, fenced_trims
from tests.leader.world import TRIMS_ALL, World
from tests.twins.manual_clock import ManualClock
from tierstate.leader.partition_worker import OTHERS_EVERY_S
from tierstate.leader.schedule import MAX_BACKOFF_S, Backoff
from tierstate.rules.observed import Observed
from tierstate.rules.reasons import Reason
from tierstate.state.errors import AccessDenied, BrokerUnavailable
from tierstate.state.facts import OrderKind
from tierstate.state.offsets import Position
from tierstate.state.segment import SegmentState

# --- turns ---------------------------------------------------------------------------------------------------------


def test_copies_go_first_and_trims_follow(world: World) -> None:
    desk = Desk(world.process()).work()
    assert desk.acts == ["term", *["copy"] * 5, "trim", "erase"][: len(desk.acts)]
    assert world.local_start() == world.bases[-1]


def test_a_backlog_of_copies_lets_the_others_have_a_turn_now_and_then(world: World) -> None:
    desk = Desk(world.process())
    assert desk.one_at_a_time(3) == ["term", "copy", "copy"]
    world.clock.advance(OTHERS_EVERY_S - 0.1)
    assert desk.one_at_a_time(1) == ["copy"]
    world.clock.advance(0.1)
    assert desk.one_at_a_time(2) == ["trim", "copy"]
    assert world.local_start() == world.bases[3]
    world.clock.advance(OTHERS_EVERY_S)
    assert desk.one_at_a_time(2) == ["trim", "copy"]


def test_kinds_take_turns_however_much_each_has_to_do(new_world: Callable[..., World]) -> None:
    """A thousand segments that expire must not keep a trim waiting, nor the tombstones, nor the other way round."""
    world = new_world("none", TRIMS_ALL)
    lower = world.process().copy_all()
    process = world.process()
    desk = Desk(process)
    say_order(world, OrderKind.DELETE_RECORDS, world.bases[4])
    assert desk.one_at_a_time(1) == ["term"]
    fenced_trims(world, lower, 8)
    taken = desk.one_at_a_time(12)
    kinds = ["erase" if each == "erase" else "trim" if each == "trim" else "expire" for each in taken]
    assert "trim" in kinds[:3]
    others = [kind for kind in kinds if kind != "trim"]
    assert all(one != following for one, following in pairwise(others)), others


def test_a_sweep_and_an_erasure_go_on_during_a_long_expiry(world: World) -> None:
    abandoned(world, 3)
    process = world.process()
    lower = process.copy_all()
    desk = Desk(world.process())
    say_order(world, OrderKind.DELETE_RECORDS, world.bases[4])
    desk.advance()
    fenced_trims(world, lower, 8)
    first = Counter(desk.one_at_a_time(9))
    assert first["erase"] >= 2
    states = [each.state for each in world.view().segments.values() if each.remote is None]
    assert states.count(SegmentState.ABANDONED) <= 1, "they were condemned beside it"


# --- what fails ----------------------------------------------------------------------------------------------------


KINDS = ["copy", "trim", "expire", "sweep", "erase"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_that_fails_for_ever_holds_up_no_other(kind: str, world: World) -> None:
    busy = Busy(world)
    assert not any(busy.done().values())
    busy.fail(kind)
    busy.desk.work(seconds=20)
    assert busy.done() == {each: each != kind for each in KINDS}
    world.check_promises()


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_that_fails_backs_off_and_goes_on_by_itself_once_it_can(kind: str, world: World) -> None:
    busy = Busy(world)
    busy.fail(kind)
    busy.desk.work(seconds=120)
    # after 1, 2, 3, 8, 18, 38 and 78 seconds
    assert 6 <= failures(busy.desk.process, kind) <= 8
    assert busy.desk.worker.failures == failures(busy.desk.process, kind)
    assert busy.desk.process.status().last_error is not None
    world.topic.on_append = lambda number, key: None
    world.clock.advance(MAX_BACKOFF_S)
    busy.desk.work(seconds=3)
    assert all(busy.done().values())
    assert busy.desk.worker.failures == 0
    assert busy.desk.process.status().last_error is None


def test_one_act_that_succeeds_ends_the_back_off_of_its_kind(world: World) -> None:
    busy = Busy(world)
    busy.fail("copy")
    busy.desk.work(seconds=10)
    assert busy.desk.worker.failures > 3
    world.topic.on_append = lambda number, key: None
    world.clock.advance(MAX_BACKOFF_S)
    while "copy" not in busy.desk.acts[-1:] or busy.desk.worker.failures:
        assert not busy.done()["copy"], "it was still failing when the last copy was done"
        busy.desk.advance()
    assert not busy.done()["copy"]


def test_a_removal_that_fails_holds_up_no_other_segment(world: World) -> None:
    copied = world.process()
    copied.copy_all()
    stuck = world.view().readable[1]

    def denied(operation: str, key: str, writes: int) -> None:
        if operation == "delete" and key.startswith(stuck.object_key):
            raise AccessDenied("no right to delete", key=key)

    world.faults = denied
    say_order(world, OrderKind.DELETE_RECORDS, world.bases[4])
    desk = Desk(world.process()).work(seconds=60)
    left = [each.segment_id for each in world.view().in_state(SegmentState.DELETE_SEGMENT_STARTED)]
    assert left == [stuck.segment_id]
    assert [segment.offsets.start for segment in world.view().readable] == [world.bases[4]]
    assert len(world.objects()) == 6
    assert desk.worker.failures == failures(desk.process, "expire")
    assert "no right to delete" in (desk.process.status().last_error or ""), "between two tries too"
    # after 1, 2, 3, 8, 18 and 38 seconds
    assert 5 <= failures(desk.process, "expire") <= 7
    world.faults = lambda operation, key, writes: None
    world.clock.advance(MAX_BACKOFF_S)
    desk.work(seconds=1)
    assert (desk.worker.failures, desk.process.status().last_error) == (0, None)
    assert len(world.objects()) == 3
    assert world.check_promises().segments.keys() == {each.segment_id for each in world.view().readable}


def test_a_failed_removal_is_forgotten_once_another_agent_did_it(world: World) -> None:
    world.process().copy_all()

    def denied(operation: str, key: str, writes: int) -> None:
        if operation == "delete":
            raise AccessDenied("no right to delete", key=key)

    world.faults = denied
    say_order(world, OrderKind.DELETE_RECORDS, world.bases[1])
    desk = Desk(world.process()).work(seconds=60)
    assert desk.worker.failures >= 5
    world.faults = lambda operation, key, writes: None
    Desk(world.process()).work(seconds=1)
    assert len(world.objects()) == 12
    desk.work(seconds=2)  # its term is over: that is a failure of its own
    assert desk.worker.failures == 0


def test_looking_that_fails_holds_up_everything_until_it_works_again(world: World) -> None:
    def away(seen: Observed) -> Observed:
        raise BrokerUnavailable("no answer")

    desk = Desk(world.process(), observed=away).work(seconds=30)
    assert desk.worker.failures == 6  # at 0, 1, 2, 3, 8 and 18 seconds
    assert world.topic.appends == 0
    desk.observed = lambda seen: seen
    world.clock.advance(MAX_BACKOFF_S)
    desk.work()
    assert desk.worker.failures == 0
    assert world.local_start() == world.bases[-1]


NO_ANSWER = BrokerUnavailable("no answer")


@pytest.mark.parametrize(
    ("count", "waits"), [(1, 1.0), (2, 1.0), (3, 1.0), (4, 5.0), (5, 10.0), (6, 20.0), (9, 160.0), (10, 300.0)]
)
def test_failures_wait_longer_each_time_and_are_forgotten_at_once(count: int, waits: float) -> None:
    clock = ManualClock()
    failing, other = Backoff(clock), Backoff(clock)

    def state() -> tuple[int, bool]:
        return failing.count, failing.waiting

    assert state() == (0, False)
    for _ in range(count):
        failing.add(NO_ANSWER)
    assert state() == (count, True)
    clock.advance(waits - 0.5)
    assert state() == (count, True)
    clock.advance(0.5)
    assert state() == (count, False)
    failing.add(NO_ANSWER)
    assert state() == (count + 1, True)
    failing.clear()
    assert state() == (0, False)
    assert (other.count, other.waiting) == (0, False)


# --- what an order stops -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_term", [False, True])
def test_a_paused_partition_does_nothing(has_term: bool, world: World) -> None:
    busy = Busy(world)
    desk = busy.desk if has_term else Desk(world.process())
    say_order(world, OrderKind.PAUSE, number=2)
    end, objects = world.topic.end(0), world.objects()
    desk.work(seconds=30)
    assert (world.topic.end(0), world.objects(), world.local_start()) == (end, objects, 0)
    assert not any(busy.done().values())
    status = desk.process.status()
    assert status.not_copied == status.not_trimmed == status.not_expired
    assert status.not_copied_reason == Reason.PAUSED
    say_order(world, OrderKind.RESUME, number=3)
    desk.work(seconds=1)
    assert all(busy.done().values())


def test_a_disabled_partition_still_expires_is_swept_and_erased(world: World) -> None:
    busy = Busy(world)
    say_order(world, OrderKind.DISABLE_KEEP, number=2)
    busy.desk.work(seconds=1)
    assert busy.done() == {"copy": False, "trim": False, "expire": True, "sweep": True, "erase": True}
    assert [segment.offsets.start for segment in world.check_promises().readable] == [world.bases[1]]
    assert len(world.objects()) == 3


# --- terms and the archive -----------------------------------------------------------------------------------------


def test_no_term_begins_just_to_erase(world: World) -> None:
    process = world.process()
    lower = process.begin()
    Desk(world.process()).work()
    trims = fenced_trims(world, lower)
    end = world.topic.end(0)
    desk = Desk(world.process()).work(seconds=600)
    assert (desk.acts, world.topic.end(0)) == ([], end)
    world.roll()
    desk.work()
    assert desk.acts[0] == "term"
    assert "copy" in desk.acts
    assert erasable_left(world).isdisjoint(trims), "once a term is there for something else, it erases too"


def test_erasing_waits_for_the_archive_of_its_own_tier_state_partition(world: World) -> None:
    lower = world.process().copy_all()
    requests: list[int] = []
    reached = [Position(0)]

    def archived_to(tier_partition: int) -> Position:
        requests.append(tier_partition)
        return reached[0]

    desk = Desk(world.process(), archived_to=archived_to)
    desk.advance()
    trims = fenced_trims(world, lower)
    desk.work(seconds=30)
    assert "erase" not in desk.acts
    assert erasable_left(world).issuperset(trims)
    assert set(requests) == {desk.process.context.view.tier_partition(world.partition)}
    reached[0] = world.topic.end(0)
    desk.work()
    assert erasable_left(world).isdisjoint(trims)


def test_a_partition_that_moves_away_is_left_alone_and_its_failures_are_forgotten(world: World) -> None:
    busy = Busy(world)
    busy.fail("copy")
    busy.desk.work(seconds=10)
    assert busy.desk.worker.failures > 3
    busy.desk.worker.rest()
    assert busy.desk.worker.failures == 0
    world.topic.on_append = lambda number, key: None
    busy.desk.acts.clear()
    assert busy.desk.advance()
    assert busy.desk.acts == ["term"]
