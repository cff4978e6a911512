"""Checkpoints that are damaged, foreign, too old or not there: passed over, never half used."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.follower.archived import DAY_MS, flips, overwrite
from tests.follower.checkpointed import NewStore, World
from tests.follower.said import PARTITIONS, identity
from tierstate.follower.checkpoint import CheckpointSeed
from tierstate.follower.object_names import TierPlace
from tierstate.follower.rocksdb_view import ViewIdentity
from tierstate.state.errors import (
    CorruptData,
    StorageUnavailable,
    TierstateError,
)
from tierstate.state.offsets import Position
from tierstate.storage.memory import MemoryStore


def test_every_changed_byte_of_a_checkpoint_is_found(in_memory: World) -> None:
    in_memory.checkpoints(3)
    (name,) = in_memory.names
    for changed in flips(in_memory.objects.get(name.key)):
        overwrite(in_memory.objects, name.key, changed)
        store = in_memory.new_store()
        assert in_memory.start(store) is None
        assert [type(error) for _, error in in_memory.refusals] == [CorruptData]
        assert name.key in str(in_memory.refusals[0][1])
        assert store.position(in_memory.number) == 0


def test_every_missing_or_added_byte_of_a_checkpoint_is_found(in_memory: World) -> None:
    in_memory.checkpoints(3)
    (name,) = in_memory.names
    data = in_memory.objects.get(name.key)
    for changed in [*(data[:end] for end in range(0, len(data), 7)), data[:-1], data + b"\0"]:
        overwrite(in_memory.objects, name.key, changed)
        assert in_memory.start(in_memory.new_store()) is None
        assert len(in_memory.refusals) == 1


def test_a_damaged_checkpoint_is_passed_over_for_the_next_older_one(world: World, new_store: NewStore) -> None:
    world.checkpoints(3, 5, 7)
    newest, middle, _ = reversed(world.names)
    for name in (newest, middle):
        overwrite(world.objects, name.key, world.objects.get(name.key)[:-1])
    store = new_store()
    header = world.start(store)
    assert header is not None
    assert header.position == 2
    assert [position for position, _ in world.refusals] == [4, 3]
    assert world.follow(store) == world.follow(new_store())


@pytest.mark.parametrize(
    "other",
    [
        replace(identity(), cluster_id="another"),
        replace(identity(), partitions=PARTITIONS + 1),
        replace(identity(), topic_id="AAAAAAAAAAAAAAAAAAAAAw"),
    ],
)
def test_a_checkpoint_of_another_cluster_mapping_or_topic_is_refused(in_memory: World, other: ViewIdentity) -> None:
    in_memory.checkpoints(3)
    (name,) = in_memory.names
    moved = TierPlace(other.topic_id, in_memory.number).checkpoint(name.position)
    if moved != name.key:
        in_memory.objects.put_if_absent(moved, in_memory.objects.get(name.key))
    assert in_memory.start(in_memory.new_store(), of=other) is None
    assert [error.message for _, error in in_memory.refusals] == ["live set is of another cluster, topic or mapping"]


def test_a_checkpoint_under_another_name_is_refused(in_memory: World) -> None:
    in_memory.checkpoints(3)
    data = in_memory.objects.get(in_memory.names[0].key)
    other = (in_memory.number + 1) % PARTITIONS
    in_memory.objects.put_if_absent(TierPlace(identity().topic_id, other).checkpoint(2), data)
    in_memory.objects.put_if_absent(TierPlace(identity().topic_id, in_memory.number).checkpoint(1), data)
    assert in_memory.start(in_memory.new_store(), number=other, end=10) is None
    assert "another's name" in in_memory.refusals[0][1].message
    in_memory.objects.delete(in_memory.names[1].key)
    assert in_memory.start(in_memory.new_store()) is None
    assert "another's name" in in_memory.refusals[0][1].message


@pytest.mark.parametrize(("days", "used"), [(15, True), (15.01, False)])
def test_a_checkpoint_older_than_half_the_life_of_tombstones_is_refused(
    in_memory: World, days: float, used: bool
) -> None:
    in_memory.checkpoints(3)
    in_memory.clock.advance(days * DAY_MS / 1000)
    assert (in_memory.start(in_memory.new_store()) is not None) is used
    assert [error.message for _, error in in_memory.refusals] == ([] if used else ["checkpoint is too old"])


def test_a_checkpoint_beyond_the_end_of_the_topic_is_refused(in_memory: World) -> None:
    in_memory.checkpoints(3, 5)
    in_memory.said.topic.truncate(in_memory.number, 2)
    header = in_memory.start(in_memory.new_store())
    assert header is not None
    assert header.position == 2
    assert [position for position, _ in in_memory.refusals] == [3]


def test_a_store_that_does_not_answer_leaves_a_plain_replay(in_memory: World) -> None:
    def down(operation: str, key: str, writes: int) -> None:
        raise StorageUnavailable("down")

    in_memory.objects = MemoryStore(in_memory.clock, down)
    reasons: list[TierstateError] = []
    store = in_memory.new_store()
    seed = CheckpointSeed(
        in_memory.said.topic,
        in_memory.objects,
        identity(),
        in_memory.clock,
        lambda key, error: reasons.append(error),
    )
    assert seed(store, in_memory.number, Position(9)) is None
    assert [type(reason) for reason in reasons] == [StorageUnavailable]
