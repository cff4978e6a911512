"""A leader whose log is another branch than what was copied: readers hear of it, though nothing is left to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.leader.world import World
from tierstate.leader.term import branched_off
from tierstate.state.epochs import Lineage


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    """Everything rolled is kept by the broker, so that once it is copied nothing is left to do."""
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


def test_a_leader_of_the_same_branch_that_has_nothing_to_do_begins_no_term(world: World) -> None:
    world.process().copy_all()
    before = world.view().term
    world.elect_here()
    heir = world.process()
    heir.work(heir.worker())
    assert world.view().term == before


@pytest.mark.parametrize(
    ("checkpoint", "branched"),
    [
        (((0, 0), (1, 9)), True),
        (((0, 0), (1, 12)), False),
        (((0, 0),), False),
        (((0, 5),), False),
        (((1, 5),), True),
        ((), False),
    ],
    ids=["inside", "behind the end", "the same", "trimmed", "trimmed, another", "empty"],
)
def test_another_epoch_where_something_is_copied_is_another_branch(
    checkpoint: tuple[tuple[int, int], ...], branched: bool, world: World
) -> None:
    world.process().copy_all()
    view = world.view()
    epoch, end = view.lineage.last_epoch, view.coverage.owned[-1].offsets.end
    assert epoch is not None
    assert view.lineage.epoch_at(5) == epoch

    def scaled(offset: int) -> int:
        return end + 1 if offset == 12 else offset

    own = Lineage.of(*((epoch + number, scaled(offset)) for number, offset in checkpoint))
    assert branched_off(view, own) is branched


@pytest.mark.parametrize(("fork", "branched"), [(8, True), (6, False)])
def test_what_a_folded_lineage_does_not_name_is_no_other_branch(fork: int, branched: bool, world: World) -> None:
    """The broker's checkpoint may still begin below the log start, where a term no longer says anything."""
    world.process().copy_all()
    view = world.view()
    assert view.leader is not None
    epoch = view.leader.epoch
    short = replace(view, leader=replace(view.leader, lineage=Lineage.of((epoch + 2, 7))))
    own = Lineage.of((epoch, 0), (epoch + 1, 5), (epoch + 2, 6), *([(epoch + 3, fork)] if branched else []))
    assert branched_off(short, own) is branched
