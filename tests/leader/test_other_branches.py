"""A leader whose log is another branch than the copies: readers are informed, though nothing is left to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.leader.world import World


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    """The broker keeps everything rolled, so that once it is copied nothing is left to do."""
    return new_world("none")


def test_a_leader_of_another_branch_begins_a_term_though_all_it_has_rolled_looks_copied(world: World) -> None:
    world.process().copy_all()
    before = world.view()
    assert before.term is not None
    lost = world.bases[1] + 1
    world.elect_here()
    epoch = world.checkpoint()[-1][0]
    world.write_checkpoint(*(entry for entry in world.checkpoint() if entry[1] < lost), (epoch, lost))
    heir = world.process()
    heir.work(heir.worker())
    view = world.view()
    assert view.term is not None
    assert view.term.epoch == epoch > before.term.epoch
    assert view.coverage.at(lost - 1) is not None
    assert view.coverage.at(lost) is None, "what the election lost is served"
