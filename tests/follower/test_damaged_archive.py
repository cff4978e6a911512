"""Damage in the archive of a tier-state partition is found and named, and nothing is written behind it."""

from __future__ import annotations

import pytest

from tests.follower.archived import Archived, flips, run
from tierstate.follower.archive import cut_archive
from tierstate.follower.archive_chain import chain_of
from tierstate.follower.archive_piece import Draft, encode_piece
from tierstate.schemas.codec import decode_fact
from tierstate.state.errors import CorruptData
from tierstate.state.offsets import Position, TimestampMs
from tierstate.state.view import MemoryView


def test_a_changed_byte_in_any_piece_is_found_and_named() -> None:
    for damaged in range(3):
        world = Archived().archived(3, 3, 3)
        name = world.names[damaged]
        data = world.store.get(name.key)
        world.overwrite(name.key, next(flips(data[::-1]))[::-1])
        with pytest.raises(CorruptData, match="does not match its hash") as caught:
            world.read()
        assert (caught.value.facts["file"], caught.value.facts["position"]) == (name.key, name.first)
        assert [(key, at) for key, at, _ in world.problems()] == [(name.key.rpartition("/")[2], name.first)]


@pytest.mark.parametrize(("missing", "named", "position"), [(0, 1, 0), (1, 2, 3)])
def test_a_missing_piece_is_found(missing: int, named: int, position: int) -> None:
    world = Archived().archived(3, 3, 3)
    names = world.names
    world.store.delete(names[missing].key)
    with pytest.raises(CorruptData, match=f"positions {position} to {position + 2} before it are missing"):
        world.read()
    assert [(key, at) for key, at, _ in world.problems()] == [(names[named].key.rpartition("/")[2], position)]


def test_swapped_pieces_are_found() -> None:
    world = Archived().archived(3, 3, 3)
    one, two = (world.store.get(name.key) for name in world.names[:2])
    world.overwrite(world.names[0].key, two)
    world.overwrite(world.names[1].key, one)
    assert [problem.split(" under")[0] for _, _, problem in world.problems()] == ["piece of the archive stands"] * 2


def test_a_piece_of_another_history_does_not_fit_into_the_chain() -> None:
    world, other = Archived().archived(3, 3, 3), Archived()
    other.append(3, b"other")
    other.archived(0, 3)
    name = world.names[1]
    world.overwrite(name.key, other.store.get(name.key))
    assert [key for key, _, _ in world.problems()] == [name.key.rpartition("/")[2] for name in world.names[1:]]
    with pytest.raises(CorruptData, match="does not continue"):
        world.read()


def test_a_first_piece_that_is_not_the_first_is_found() -> None:
    world, other = Archived().archived(4), Archived().archived(2, 2)
    assert (world.ranges, other.ranges) == ([(0, 3)], [(0, 1), (2, 3)])
    moved = other.names[1]
    world.store.delete(world.names[0].key)
    world.store.put_if_absent(moved.key, other.store.get(moved.key))
    assert [at for _, at, _ in world.problems()] == [0]


def test_a_piece_at_the_beginning_that_names_one_before_it_is_found() -> None:
    world, other = Archived().archived(3), Archived().archived(2)
    (piece,) = world.pieces()
    forged = encode_piece(world.identity, 0, Draft(Position(0), Position(2), piece.entries, 0, False), *other.pieces())
    world.overwrite(piece.name.key, forged)
    assert [problem for _, _, problem in world.problems()] == ["it stands first and is not the first"]


def test_a_stranger_among_the_pieces_is_reported_and_not_read() -> None:
    world = Archived().archived(3)
    world.store.put_if_absent(f"{world.place.pieces_prefix}note.txt", b"hello")
    assert world.problems() == [("note.txt", None, "not a piece of the archive")]
    assert world.read() == world.said()


def test_nothing_is_written_behind_a_damaged_piece() -> None:
    world = Archived().archived(3, 3)
    name = world.names[1]
    world.overwrite(name.key, world.store.get(name.key)[:-1])
    world.append(1)
    with pytest.raises(CorruptData):
        run(world.archive())
    world.store.delete(name.key)  # as a person would repair it
    run(world.archive())
    assert world.ranges == [(0, 2), (3, 6)]
    assert world.read() == world.said()


def test_two_pieces_that_contradict_each_other_are_found() -> None:
    world, other = Archived(), Archived()
    other.append(3, b"other")
    run(other.archive())
    world.append(4)
    run(world.archive())
    name = other.names[0]
    world.store.put_if_absent(name.key, other.store.get(name.key))
    assert [(key, at) for key, at, _ in world.problems()] == [(name.key.rpartition("/")[2], 0)]
    with pytest.raises(CorruptData, match="contradicts"):
        world.read()


def test_a_lost_piece_is_reported_once_a_day_from_names_alone() -> None:
    world = Archived().archived(5, 5, 5)
    world.store.delete(world.names[1].key)
    with pytest.raises(CorruptData, match="missing") as lost:
        run(cut_archive(world.shelf, TimestampMs(0), lambda: MemoryView(decode_fact, 1)))
    assert (lost.value.facts["first"], lost.value.facts["last"]) == (5, 9)
    world.store.delete(world.names[0].key)
    assert chain_of(world.store, world.place).missing == (0, 9)
