"""Consumer groups are asked for again before a trim: a listing of minutes ago misses those that moved since."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.leader.test_observing import Counted, observer
from tests.leader.world import Process, World, nobody_reads, run_with
from tierstate.leader.object_proof import ObjectProof
from tierstate.leader.trimmer import LAST_CHECKS_S, trim_local
from tierstate.rules.reasons import Reason
from tierstate.rules.trim import offsets_cut_elsewhere
from tierstate.runtime.operation import run
from tierstate.state.errors import TimedOut
from tierstate.state.ids import BrokerId, TopicIdPartition
from tierstate.state.offsets import Offset
from tierstate.state.routing import LocalBounds


def reset(world: World, group: str) -> None:
    world.broker.commit(group, world.name, 0, 0)


def appear(world: World, group: str) -> None:
    world.broker.join(group, world.name, 0)


def read_a_little(world: World, group: str) -> None:
    world.broker.commit(group, world.name, 0, world.bases[1] + 1)


def hide(world: World, group: str) -> None:
    world.broker.hide_groups(f"the offsets of {group} are unknown")


MOVES: list[Callable[[World, str], None]] = [reset, appear, read_a_little, hide]
"""Possible changes of groups right after they were asked."""


def listed_before(world: World, how: Callable[[World, str], None]) -> Process:
    """Copy everything; the group's offset is read, it moves, and 36 s later the delay is over."""
    process = world.process()
    if how is reset:
        world.broker.commit("moved", world.name, 0, world.end())
    worker = process.work(process.worker(delay_ms=36_000))
    assert process.status().not_trimmed_reason == Reason.TRIM_DELAY
    how(world, "moved")
    world.clock.advance(36)
    process.work(worker)
    return process


@pytest.mark.parametrize("how", [reset, appear, hide])
def test_a_group_that_moved_since_it_was_listed_prevents_the_trim(
    how: Callable[[World, str], None], world: World
) -> None:
    process = listed_before(world, how)
    assert world.local_start() == 0
    assert world.view().trim_intended is None
    assert process.status().not_trimmed_reason == (Reason.GROUPS_UNKNOWN if how is hide else Reason.GROUP_HOLDS)
    assert "moved" in (process.status().not_trimmed or "")
    assert (process.status().consecutive_failures, process.status().last_error) == (0, None)


def test_records_behind_a_group_that_moved_are_trimmed(world: World) -> None:
    listed_before(world, read_a_little)
    assert world.local_start() == world.view().trim_intended == world.bases[1]


@pytest.mark.parametrize("how", MOVES)
def test_groups_are_asked_once_more_after_the_intention(how: Callable[[World, str], None], world: World) -> None:
    process = world.process()
    worker = process.worker(delay_ms=36_000)
    process.work(worker)
    world.clock.advance(36)
    run_with(worker.steps(), "delete-records", lambda: how(world, "late"))
    assert world.local_start() == 0
    assert world.view().trim_intended == world.bases[-1]
    process.work(worker)
    left = world.bases[1] if how is read_a_little else 0
    assert world.local_start() == left
    assert "late" in (process.status().not_trimmed or "")
    assert process.status().term is not None, "no term ends for it"
    for _ in range(100):
        world.clock.advance(1)
        process.work(worker)
    intended = [key for key in world.topic.keys() if "/trim/" in key]
    assert len(intended) == (2 if left else 1), "nothing is intended that a group is known to hold"


def test_an_intention_that_was_given_up_stands_until_the_next_one(world: World) -> None:
    """Other cuts of the broker's log below it are not recognised until then; no decision depends on it."""
    process = world.process()
    worker = process.worker(delay_ms=36_000)
    process.work(worker)
    world.clock.advance(36)
    run_with(worker.steps(), "delete-records", lambda: read_a_little(world, "late"))
    process.work(worker)
    assert world.view().trim_intended == world.local_start() == world.bases[1]
    world.broker.delete_records_on(BrokerId(1), world.name, 0, Offset(world.bases[2]))
    assert offsets_cut_elsewhere(world.view(), Offset(world.local_start())) == world.bases[2] - world.bases[1]


def test_last_checks_that_take_too_long_are_no_ground_for_a_trim(world: World) -> None:
    process = world.process()
    session = process.copy_all()
    slow: Any = Slow(world)
    session.context = replace(session.context, broker=slow)
    with pytest.raises(TimedOut, match="took too long"):
        run(trim_local(session, ObjectProof(world.store), Offset(world.bases[2]), process.events.append, nobody_reads))
    assert world.local_start() == 0


class Slow:
    """A broker that answers late, or to a process that was frozen in between, once a trim is intended."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.broker, name)

    def bounds(self, *asked: Any, **named: Any) -> LocalBounds:
        if self._world.view().trim_intended is not None:
            self._world.clock.advance(LAST_CHECKS_S + 1)
        return self._world.broker.bounds(*asked, **named)


# --- listings ------------------------------------------------------------------------------------------------------


def test_groups_are_asked_again_when_they_must_be_newer_than_some_moment_and_looks_go_by_that(world: World) -> None:
    broker = Counted(world)
    observe = observer(world, broker)
    bounds, now = observe(world.partition, world.name).bounds, world.clock.monotonic()
    world.broker.commit("reset", world.name, 0, 5)
    assert observe.groups_after(world.partition, world.name, bounds, now - 10) == {}
    assert observe.groups_after(world.partition, world.name, bounds, now) == {"reset": 5}
    assert observe(world.partition, world.name).groups.holds == {"reset": 5}
    assert broker.asked["groups"] == 2


def test_a_caller_that_needs_a_new_listing_shares_only_the_next_one(world: World) -> None:
    broker = Counted(world)
    observe, bounds = observer(world, broker), world.broker.bounds(world.name, 0)
    began, go_on, now = threading.Event(), threading.Event(), world.clock.monotonic()

    def slowly() -> None:
        began.set()
        go_on.wait(30)

    broker.listing = slowly
    listings: list[object] = []

    def ask(moment: float) -> None:
        listings.append(observe.groups_after(world.partition, world.name, bounds, moment))

    threads = [threading.Thread(target=ask, args=(moment,)) for moment in (now - 1, now + 1, now + 1, now + 1)]
    threads[0].start()
    began.wait(30)
    world.clock.advance(2)
    for each in threads[1:]:
        each.start()
    go_on.set()
    for each in threads:
        each.join(30)
    assert (len(listings), broker.asked["groups"]) == (4, 2)


def test_a_listing_that_was_asked_for_earlier_and_comes_later_replaces_nothing(world: World) -> None:
    broker = Counted(world)
    observe, bounds = observer(world, broker), world.broker.bounds(world.name, 0)
    due = {world.partition: world.name, TopicIdPartition(world.topic_id, 1): world.name}

    def meanwhile() -> None:
        world.clock.advance(1)
        world.broker.commit("reset", world.name, 0, 5)
        observe.groups_after(world.partition, world.name, bounds, world.clock.monotonic() - 1)
        world.broker.commit("reset", world.name, 0, world.end())

    broker.listing_ahead = meanwhile
    observe.ahead(due, {world.name})
    assert observe(world.partition, world.name).groups.holds == {"reset": 5}


def test_the_status_says_when_groups_were_asked_and_how_long_ago_that_is(world: World) -> None:
    process = world.process()
    worker = process.worker()
    asked_at = world.clock.now_ms()
    process.work(worker)
    world.clock.advance(41)
    process.work(worker)
    shown = process.board.find(world.name, 0, world.clock.now_ms())
    assert shown is not None
    assert (shown["groups_asked_at"], shown["groups_age_s"]) == (asked_at, 41.0)
