"""Checkpoints: a view that starts from one equals the view of a replay; any doubtful checkpoint is passed over."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.follower.archived import crash, run
from tests.follower.checkpointed import NewStore, World
from tests.follower.said import PARTITIONS, elected, identity, log_start, partition
from tierstate.app.opening.connection import Connection
from tierstate.app.operating.upkeep import seed_of
from tierstate.follower.checkpoint import CheckpointSeed, checkpoint
from tierstate.follower.following import Following
from tierstate.follower.open import open_view
from tierstate.follower.rocksdb_view import RocksView
from tierstate.follower.view_identity import Shelf
from tierstate.runtime.listener import CheckpointUsed, Event
from tierstate.schemas.codec import decode_fact
from tierstate.state.errors import (
    CorruptData,
    IllegalTransition,
    InvalidRequest,
    TierstateError,
    ViewBehind,
)
from tierstate.state.facts import IntegrityHold
from tierstate.state.ids import BrokerId, FactId
from tierstate.state.offsets import Position, TimestampMs
from tierstate.state.view import MemoryView, ViewStore

# --- a view from a checkpoint equals the view of a replay -------------------------------------------------------------


def test_a_view_from_a_checkpoint_is_the_view_of_a_replay_and_follows_on(world: World, new_store: NewStore) -> None:
    world.speak(3, 5, 7)
    world.said.erase(log_start(0, 5, world.leader, world.at, counter=5))
    run(world.act())
    started, replayed = new_store(), new_store()
    header = world.start(started)
    assert header is not None
    assert (header.position, started.position(world.number)) == (5, 5)
    before = world.digest(started)
    assert world.follow(started) == world.follow(replayed) == (before, 5)
    assert header.live_set_digest == before
    assert header.entries == 3
    world.speak(9)
    world.said.erase(log_start(0, 3, world.leader, world.at, counter=3))
    assert world.follow(started) == world.follow(replayed)
    assert started.state(partition(0)).view() == replayed.state(partition(0)).view()
    assert started.state(partition(0)).view().log_start == 9
    assert started.partitions() == replayed.partitions() == [partition(0)]


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(1, 9), st.booleans(), st.booleans()), max_size=25))
def test_after_any_history_every_start_ends_where_a_replay_does(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[int, bool, bool]]
) -> None:
    world = World(lambda: MemoryView(decode_fact, PARTITIONS))
    for offset, erase, checkpointed in history:
        fact = log_start(0, offset, world.leader, world.at, counter=offset)
        world.said.erase(fact) if erase else world.said.say(fact)
        if checkpointed:
            run(world.act())
    replayed = world.follow(MemoryView(decode_fact, PARTITIONS))
    from_memory = MemoryView(decode_fact, PARTITIONS)
    from_disk = RocksView(tmp_path_factory.mktemp("view"), identity(), decode_fact)
    headers = world.start(from_memory), world.start(from_disk)
    assert headers[0] == headers[1]
    assert (headers[0] is not None) == any(checkpointed for _, _, checkpointed in history)
    assert world.follow(from_memory) == world.follow(from_disk) == replayed
    from_disk.close()


def test_a_partition_in_which_nothing_stands_starts_at_its_position(world: World, new_store: NewStore) -> None:
    world.said.erase(world.leader)
    run(world.act())
    store = new_store()
    assert world.start(store) is not None
    assert (store.position(world.number), list(store.entries())) == (2, [])


def test_a_start_survives_a_restart(tmp_path: Path, in_memory: World) -> None:
    in_memory.checkpoints(3, 5)
    store = RocksView(tmp_path / "view", identity(), decode_fact)
    in_memory.start(store)
    before = in_memory.digest(store), store.position(in_memory.number), store.as_of(in_memory.number)
    store.close()
    again = RocksView(tmp_path / "view", identity(), decode_fact, create=False)
    assert (in_memory.digest(again), again.position(in_memory.number), again.as_of(in_memory.number)) == before
    assert before[2] == in_memory.clock.now_ms()
    again.close()


def test_only_an_empty_view_starts_from_a_checkpoint(world: World, new_store: NewStore) -> None:
    world.checkpoints(3)
    store = new_store()
    world.follow(store)
    with pytest.raises(InvalidRequest, match="only an empty view"):
        world.start(store)


def test_without_a_checkpoint_nothing_is_started_and_nothing_refused(in_memory: World) -> None:
    store = in_memory.new_store()
    assert in_memory.start(store) is None
    assert (store.position(in_memory.number), in_memory.refusals) == (0, [])


# --- what is never written --------------------------------------------------------------------------------------------


def test_no_checkpoint_is_written_while_a_hold_stands(world: World) -> None:
    hold = IntegrityHold(partition(0), FactId.of(bytes(16)), BrokerId(1), "reason", "one", "two", TimestampMs(1))
    world.said.say(hold)
    with pytest.raises(IllegalTransition, match="hold stands"):
        run(world.act())
    assert world.names == []
    world.said.erase(hold)
    run(world.act())
    assert [name.position for name in world.names] == [3]


def test_no_checkpoint_is_written_of_a_view_with_a_foreign_key(world: World) -> None:
    world.said.topic.append(world.number, "who wrote this?", b"nobody knows")
    with pytest.raises(CorruptData, match="foreign"):
        run(world.act())
    assert world.names == []


def test_no_checkpoint_is_written_when_a_key_has_two_values(world: World) -> None:
    world.speak(3)
    other = replace(log_start(0, 3, world.leader, world.at, counter=3), reason="another")
    world.said.say(other)
    with pytest.raises(IllegalTransition, match="two values"):
        run(world.act())
    assert world.names == []


def test_no_checkpoint_is_written_of_a_view_that_left_a_partition_out(in_memory: World) -> None:
    def partial() -> ViewStore:
        store = MemoryView(decode_fact, PARTITIONS)
        store.drop(in_memory.number, partition(0))
        return store

    in_memory.new_store = partial
    with pytest.raises(InvalidRequest, match="not all partitions"):
        run(in_memory.act())
    assert in_memory.names == []


def test_a_view_that_took_too_long_to_catch_up_is_not_ready_and_not_written(in_memory: World) -> None:
    class Slow(MemoryView):
        def position(self, tier_partition: int) -> Position:
            in_memory.clock.advance(3 * 3600)
            return super().position(tier_partition)

    in_memory.new_store = lambda: Slow(decode_fact, PARTITIONS)
    with pytest.raises(ViewBehind, match="not ready"):
        run(in_memory.act())
    assert in_memory.names == []


def test_a_checkpoint_of_a_log_that_was_truncated_is_not_built_upon(in_memory: World) -> None:
    in_memory.checkpoints(3, 5)
    in_memory.said.topic.truncate(in_memory.number, 2)
    in_memory.speak(7, 8, 9)
    run(in_memory.act())
    store = in_memory.new_store()
    header = in_memory.start(store)
    assert header is not None
    assert header.position == 5
    assert in_memory.follow(store) == in_memory.follow(in_memory.new_store())


def test_a_follower_starts_from_a_checkpoint_and_not_twice_from_the_same(tmp_path: Path, in_memory: World) -> None:
    in_memory.checkpoints(3, 5)
    used: list[tuple[Position, Position]] = []
    seed = CheckpointSeed(in_memory.said.topic, in_memory.objects, identity(), in_memory.clock, in_memory._refused)

    def watched(store: ViewStore, tier_partition: int, end: Position) -> None:
        seed(store, tier_partition, end)
        if tier_partition == in_memory.number:
            used.append((store.position(tier_partition), end))

    topic = in_memory.said.topic
    follower = open_view(topic, "cluster", in_memory.clock, Following(seed=watched, tail=False), state_dir=tmp_path)
    assert used == [(3, 3)]
    in_memory.speak(6, 7, 8)
    follower.require_fresh(in_memory.number, 0)
    assert follower.partition(partition(0)).log_start == 8
    topic.truncate(in_memory.number, 1)  # below every checkpoint
    in_memory.speak(1)
    for _ in range(5):
        with suppress(TierstateError):
            follower.require_fresh(in_memory.number, 0)
    assert follower.partition(partition(0)).log_start == 1
    # the checkpoint at 2 belongs to the log before the truncation to 1: its end fits, but the record before it differs
    assert used == [(3, 3), (0, 2)]
    follower.close()
    assert not list(tmp_path.rglob("tierstate-*"))


def test_a_checkpoint_is_used_once_in_the_life_of_a_process(in_memory: World) -> None:
    """If the view that began with a checkpoint is lost again, the checkpoint may be why: an older one is next."""
    in_memory.checkpoints(3, 5)
    seed = CheckpointSeed(in_memory.said.topic, in_memory.objects, identity(), in_memory.clock, in_memory._refused)
    end = in_memory.said.topic.end(in_memory.number)
    headers = [seed(in_memory.new_store(), in_memory.number, end) for _ in range(3)]
    assert [header.position if header else None for header in headers] == [3, 2, None]


# --- keeping, and crashes ---------------------------------------------------------------------------------------------


def test_the_newest_are_kept(in_memory: World) -> None:
    in_memory.checkpoints(1, 2, 3, 4, 5)
    assert [name.position for name in in_memory.names] == [4, 5, 6]
    run(in_memory.act(keep=1))
    assert [name.position for name in in_memory.names] == [6]


def test_a_position_is_written_once(in_memory: World) -> None:
    in_memory.checkpoints(1)
    assert list(in_memory.act()) == []


def test_two_agents_at_one_position_do_not_disturb_each_other(in_memory: World) -> None:
    slow = in_memory.speak(1).act()
    next(slow)
    run(in_memory.act())
    assert run(slow) == 2
    assert [name.position for name in in_memory.names] == [2]


def test_a_crash_before_any_step_leaves_only_whole_checkpoints() -> None:
    step, crashed = 0, True
    while crashed:
        world = World(lambda: MemoryView(decode_fact, PARTITIONS)).checkpoints(1, 2, 3)
        crashed = crash(world.speak(4).act(keep=2), step)
        assert world.start(world.new_store()) is not None
        assert world.refusals == []
        run(world.act(keep=2))
        assert [name.position for name in world.names] == [4, 5]
        step += 1
    assert step == 4


def test_the_checkpoints_of_all_tier_state_partitions_are_one_line_of_the_log(tmp_path: Path, in_memory: World) -> None:
    topic, objects, clock = in_memory.said.topic, in_memory.objects, in_memory.clock
    for number in range(20):
        in_memory.said.say(elected(number, 1, 1))
    numbers = range(topic.mapped_partitions)
    with_facts = [number for number in numbers if topic.end(number)]
    assert len(with_facts) > 1
    for number in with_facts:
        run(checkpoint(topic, Shelf(objects, identity(), number), clock, 3, in_memory.new_store, in_memory._refused))
    events: list[Event] = []
    connection = cast(Connection, SimpleNamespace(topic=topic, clock=clock))
    seed = seed_of(connection, objects, identity(), events.append)
    open_view(topic, "cluster", clock, Following(seed=seed, tail=False), state_dir=tmp_path).close()
    (used,) = events
    assert isinstance(used, CheckpointUsed)
    assert used.positions == tuple(int(topic.end(number)) if number in with_facts else -1 for number in numbers)
