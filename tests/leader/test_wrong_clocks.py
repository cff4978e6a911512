"""An agent whose clock, or whose broker's clock, is wrong by days deletes nothing because of its age."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.leader.expiry import say_order
from tests.leader.turns import Desk
from tests.leader.world import FaultyTopic, World
from tests.twins.wrong_clock import DAY_S, WrongClock
from tierstate.rules.reasons import Reason
from tierstate.state.facts import OrderKind

NewWorld = Callable[..., World]
COPIES = ["term", *["copy"] * 5]


def a_day_left(new_world: NewWorld) -> World:
    """A world whose records are minutes old, with a retention of a day."""
    world = new_world("none", {"retention.ms": str(round(DAY_S * 1000))})
    newest = max(batch.max_timestamp for base in world.rolled for batch in world.batches(base))
    world.clock.advance((newest - world.clock.now_ms()) / 1000 + 300)
    return world


def desk(world: World, clock: WrongClock) -> Desk:
    process = world.process()
    process.context = replace(process.context, clock=clock)
    return Desk(process)


@pytest.mark.parametrize("days", [2, -2])
def test_an_agent_with_a_wrong_clock_copies_and_deletes_nothing(new_world: NewWorld, days: int) -> None:
    world = a_day_left(new_world)
    busy = desk(world, WrongClock(world.clock, days * DAY_S)).work()
    assert busy.acts == COPIES
    (status,) = busy.process.board.all()
    assert status.not_expired_reason is Reason.CLOCKS_DISAGREE
    assert status.not_trimmed_reason is Reason.CLOCKS_DISAGREE


@pytest.mark.parametrize("days", [3, -3])
def test_a_broker_with_a_wrong_clock_stops_deletion(new_world: NewWorld, days: int) -> None:
    world = a_day_left(new_world)
    world.topic = FaultyTopic(WrongClock(world.clock, days * DAY_S))
    assert desk(world, WrongClock(world.clock)).work().acts == COPIES


def test_a_clock_that_steps_ahead_while_the_agent_runs_deletes_nothing_until_it_is_set_back(
    new_world: NewWorld,
) -> None:
    world = a_day_left(new_world)
    clock = WrongClock(world.clock)
    busy = desk(world, clock).work()
    clock.ahead_s = 2 * DAY_S
    busy.acts.clear()
    busy.work()
    assert "expire" not in busy.acts
    clock.ahead_s = 0.0
    world.clock.advance(2 * DAY_S)  # now they are too old
    busy.work()
    assert "expire" in busy.acts


def test_an_agent_that_starts_on_an_idle_topic_asks_the_broker_and_expires(new_world: NewWorld) -> None:
    world = a_day_left(new_world)
    world.process().copy_all()
    world.topic.append_times.clear()
    world.clock.advance(2 * DAY_S)
    again = desk(world, WrongClock(world.clock)).work()
    assert again.acts[0] == "term"
    assert "expire" in again.acts


def test_a_person_may_order_deletion_while_the_clocks_differ(new_world: NewWorld) -> None:
    world = a_day_left(new_world)
    busy = desk(world, WrongClock(world.clock, 2 * DAY_S)).work()
    busy.acts.clear()
    say_order(world, OrderKind.DELETE_RECORDS, world.bases[1])
    busy.work()
    assert {"expire", "cut"} <= set(busy.acts)
    assert "remove" not in busy.acts
