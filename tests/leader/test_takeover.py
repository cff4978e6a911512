"""A new leader that cannot learn what is copied: this lost a predecessor its backlog (tests/predecessor.md, H5)."""

from __future__ import annotations

from tests.leader.world import World
from tierstate.state.errors import BrokerUnavailable


def no_answer() -> None:
    raise BrokerUnavailable("no answer", broker=1)


def test_a_new_leader_that_cannot_read_the_facts_copies_nothing_and_skips_nothing_later(world: World) -> None:
    first = world.process()
    first.copy_all()
    copied = {segment.offsets for segment in world.view().readable}
    world.elect_here()
    world.roll()
    heir = world.process()
    worker = heir.worker()
    world.topic.on_end = no_answer
    for _ in range(3):
        heir.work(worker)
        world.clock.advance(60)
    assert "no answer" in (heir.status().last_error or "")
    world.topic.on_end = lambda: None
    assert {segment.offsets for segment in world.view().readable} == copied
    world.clock.advance(600)
    heir.work(worker)
    assert [segment.offsets.start for segment in world.view().readable] == world.rolled
