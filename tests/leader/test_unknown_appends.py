"""A fact whose append has an unknown outcome is never written again: the agent starts a new term."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.leader.world import World
from tierstate.leader.copier import copy_segment
from tierstate.leader.term import TermSession
from tierstate.runtime.listener import TermEnded
from tierstate.runtime.operation import run
from tierstate.state.errors import AccessDenied, Fenced, UnknownOutcome, ViewBehind
from tierstate.state.offsets import Position
from tierstate.state.view import TierView


@pytest.mark.parametrize("landing", [True, False])
@pytest.mark.parametrize("number", range(13))
def test_an_append_of_unknown_outcome_ends_the_term_and_a_new_one_finishes(
    number: int, landing: bool, world: World
) -> None:
    """Each append of the whole work fails in turn: none is repeated, nothing is lost, nothing is readable twice."""

    def lost(at: int, key: str) -> None:
        if at == number:
            raise UnknownOutcome("no acknowledgement", key=key)

    if landing:
        world.topic.after_append = lost
    else:
        world.topic.on_append = lost
    process = world.process()
    worker = process.worker()
    for _ in range(4):
        process.work(worker)
        world.clock.advance(200)
    keys = world.topic.keys()
    assert len(keys) == len(set(keys)), "an append was repeated"
    assert world.topic.appends > number
    view = world.check_promises()
    assert view.coverage.prefix_end(0) == world.bases[-1] - 1
    assert [segment.offsets.start for segment in view.readable] == world.rolled
    assert world.local_start() == world.bases[-1]
    ended = [event.reason for event in process.events if isinstance(event, TermEnded)]
    assert ended == ([] if number < 2 else ["an append of unknown outcome"])


def test_a_term_whose_append_was_refused_takes_no_further_step(world: World) -> None:
    """An attempt before the one that was refused may have landed."""
    session = world.process().copy_all()

    def refuse(at: int, key: str) -> None:
        raise AccessDenied("no permission", key=key)

    world.topic.on_append = refuse
    with pytest.raises(AccessDenied):
        session.erase("a key")
    with pytest.raises(Fenced):
        session.view()


def test_a_leader_elected_of_unknown_outcome_that_appears_is_the_term(world: World) -> None:
    def lost(at: int, key: str) -> None:
        if at == 0:
            raise UnknownOutcome("no acknowledgement", key=key)

    world.topic.after_append = lost
    session = world.process().begin()
    assert session.term.position == 0
    assert sum("/leader/" in key for key in world.topic.keys()) == 1


def test_a_second_leader_elected_is_not_sent_while_the_first_may_still_land(world: World) -> None:
    def lost(at: int, key: str) -> None:
        if at == 0:
            raise UnknownOutcome("no acknowledgement", key=key)

    world.topic.on_append = lost
    process = world.process()
    began = world.clock.monotonic()
    with pytest.raises(UnknownOutcome):
        process.begin()
    assert world.clock.monotonic() - began >= 90
    assert world.topic.appends == 1


def test_a_copy_finished_of_unknown_outcome_keeps_its_objects(world: World) -> None:
    """It may have landed: readers may be reading them."""

    def lost(at: int, key: str) -> None:
        if key.endswith("copy-finished"):
            raise UnknownOutcome("no acknowledgement", key=key)

    world.topic.after_append = lost
    process = world.process()
    with pytest.raises(UnknownOutcome):
        process.copy_next(process.begin())
    assert len(world.check_promises().readable) == 1


def test_a_view_that_does_not_apply_an_own_write_ends_the_term(world: World) -> None:
    """The view is then older than the knowledge of this term: no decision may be based on it."""
    process = world.process()
    session = process.begin()
    candidate = process.candidate(session)
    view: Any = NeverApplies(process.view)
    context = replace(process.context, view=view)
    deaf = TermSession(context, world.partition, world.name, session.term, session.broker_id)
    with pytest.raises(ViewBehind):
        run(copy_segment(deaf, candidate, process.tools))
    assert deaf.ended == "the view did not apply an own write in time"
    appends_before = world.topic.appends
    with pytest.raises(Fenced):
        run(copy_segment(deaf, candidate, process.tools))
    assert world.topic.appends == appends_before


class NeverApplies:
    """A view whose follower hangs."""

    def __init__(self, view: TierView) -> None:
        self._view = view

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    def wait_applied(self, tier_partition: int, position: Position, timeout: float) -> None:
        raise ViewBehind("view has not applied this position yet", position=position)
