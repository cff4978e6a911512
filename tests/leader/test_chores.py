"""Chores end between two steps when the process stops, and one chore delays no other."""

from __future__ import annotations

import threading

from tests.leader.custody_world import Ward
from tests.leader.world import World
from tierstate.leader.chores import Chore, ChoreLoop
from tierstate.runtime.listener import ChoreFailed, Event
from tierstate.runtime.operation import Operation
from tierstate.state.errors import StorageUnavailable, Unavailable


def nothing() -> None:
    """Look at nothing: there is no cluster."""


class House:
    """A loop with chores that note their work."""

    def __init__(self, world: World, *chores: Chore) -> None:
        self.events: list[Event] = []
        self.chores = ChoreLoop(lambda: {0}, chores, Ward(world).custodian, nothing, world.clock, self.events.append)


def test_a_chore_takes_no_step_more_once_the_process_stops_and_lets_go_of_what_it_holds(world: World) -> None:
    stop, done = threading.Event(), list[str]()

    def act(number: int, told: threading.Event) -> Operation[None]:
        try:
            for step in ("first", "second", "third"):
                yield step
                done.append(step)
                if step == "first":
                    stop.set()
        finally:
            done.append("let go")

    House(world, Chore("long", 60, act), Chore("later", 60, act)).chores.advance(stop)
    assert done == ["first", "let go"]


def test_a_chore_that_is_stopped_within_a_step_is_no_failure(world: World) -> None:
    stop = threading.Event()

    def act(number: int, told: threading.Event) -> Operation[None]:
        yield "read"
        stop.set()
        if told.is_set():
            raise Unavailable("this process stops")

    house = House(world, Chore("reading", 60, act))
    house.chores.advance(stop)
    assert house.events == []


def test_a_chore_that_is_called_does_not_wait_for_its_turn_unless_it_failed(world: World) -> None:
    done, calls, stop = list[int](), [False], threading.Event()
    broken = [False]

    def act(number: int, told: threading.Event) -> Operation[None]:
        yield "work"
        done.append(number)
        if broken[0]:
            raise StorageUnavailable("down")

    chores = House(world, Chore("soon", 60, act, lambda number: calls[0])).chores
    chores.advance(stop)
    chores.advance(stop)
    assert len(done) == 1
    calls[0] = True
    chores.advance(stop)
    assert len(done) == 2
    broken[0] = True
    chores.advance(stop)
    chores.advance(stop)
    assert len(done) == 3, "who fails is not called again before its turn"
    world.clock.advance(61)
    chores.advance(stop)
    assert len(done) == 4


def test_a_failed_chore_is_reported_and_the_next_one_is_done(world: World) -> None:
    done: list[str] = []

    def failing(number: int, told: threading.Event) -> Operation[None]:
        yield "put"
        raise StorageUnavailable("no answer")

    def working(number: int, told: threading.Event) -> Operation[None]:
        yield "put"
        done.append("put")

    house = House(world, Chore("failing", 60, failing), Chore("working", 60, working))
    house.chores.advance(threading.Event())
    assert done == ["put"]
    assert house.events == [ChoreFailed("failing", 0, "no answer")]
    assert house.chores.names == ["look", "custody", "failing", "working"]
