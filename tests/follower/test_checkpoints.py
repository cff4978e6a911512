"""Checkpoints: a view that starts from one is the view that a replay makes; anything doubtful is passed over."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.follower.archived import DAY_MS, crash, flips, overwrite, run
from tests.follower.said import PARTITIONS, Topic, elected, identity, log_start, partition
from tierstate.follower.checkpoint import CheckpointSeed, checkpoint, start_from_checkpoint
from tierstate.follower.digests import live_set_digest
from tierstate.follower.live_set_object import LiveSetHeader
from tierstate.follower.object_names import PositionName, TierPlace
from tierstate.follower.open import open_view
from tierstate.follower.replay import catch_up
from tierstate.follower.rocksdb_view import RocksView, ViewIdentity
from tierstate.runtime.clock import ManualClock
from tierstate.schemas.codec import decode_fact
from tierstate.state.errors import (
    CorruptData,
    IllegalTransition,
    InvalidRequest,
    StorageUnavailable,
    TierstateError,
    ViewBehind,
)
from tierstate.state.facts import IntegrityHold
from tierstate.state.ids import BrokerId, FactId
from tierstate.state.keys import key_of
from tierstate.state.offsets import Position, TimestampMs
from tierstate.state.view import MemoryView, ViewStore
from tierstate.storage.memory import MemoryStore

NewStore = Callable[[], ViewStore]
KEEP = 3


@dataclass
class World:
    """A topic of which partition 0's facts are in one tier-state partition, and checkpoints of that."""

    new_store: NewStore
    said: Topic = field(default_factory=Topic)
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.objects = MemoryStore(self.clock)
        self.leader = elected(0, 1, 1)
        self.number = self.said.number(key_of(self.leader))
        self.at = self.said.say(self.leader)
        self.refusals: list[tuple[int, TierstateError]] = []

    @property
    def names(self) -> list[PositionName]:
        return TierPlace(self.said.topic.topic_id, self.number).checkpoints(self.objects)

    def speak(self, *offsets: int) -> World:
        for offset in offsets:
            self.said.say(log_start(0, offset, self.leader, self.at, counter=offset))
        return self

    def act(self, keep: int = KEEP) -> Generator[str, None, Position]:
        return checkpoint(
            self.said.topic, self.objects, identity(), self.number, self.clock, keep, self.new_store, self._refused
        )

    def checkpoints(self, *offsets: int) -> World:
        """One after each of these facts."""
        for offset in offsets:
            run(self.speak(offset).act())
        return self

    def _refused(self, key: str, error: TierstateError) -> None:
        self.refusals.append((int(key.rpartition("/")[2] or -1), error))

    def start(
        self, store: ViewStore, of: ViewIdentity | None = None, number: int | None = None, end: int | None = None
    ) -> LiveSetHeader | None:
        """``refusals``: positions of the checkpoints that were passed over, and why."""
        self.refusals.clear()
        number = self.number if number is None else number
        at = self.said.topic.end(number) if end is None else Position(end)
        now = self.clock.now_ms()
        return start_from_checkpoint(store, self.objects, of or identity(), number, at, now, self._refused)

    def follow(self, store: ViewStore) -> tuple[str, int]:
        """Up to the end: digest of the live set, and position."""
        catch_up(self.said.topic, store, {self.number: self.said.topic.end(self.number)})
        return self.digest(store), store.position(self.number)

    def digest(self, store: ViewStore) -> str:
        return live_set_digest(store.entries(self.number)).hexdigest()


@pytest.fixture
def world(new_store: NewStore) -> World:
    return World(new_store)


@pytest.fixture
def in_memory() -> World:
    return World(lambda: MemoryView(decode_fact, PARTITIONS))


# --- what starts from one is what a replay makes ----------------------------------------------------------------------


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


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
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


# --- what is refused --------------------------------------------------------------------------------------------------


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
    started = start_from_checkpoint(
        store,
        in_memory.objects,
        identity(),
        in_memory.number,
        Position(9),
        TimestampMs(0),
        lambda key, error: reasons.append(error),
    )
    assert started is None
    assert [type(reason) for reason in reasons] == [StorageUnavailable]


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
    seed = CheckpointSeed(in_memory.objects, identity(), in_memory.clock, in_memory._refused)

    def watched(store: ViewStore, tier_partition: int, end: Position) -> None:
        seed(store, tier_partition, end)
        if tier_partition == in_memory.number:
            used.append((store.position(tier_partition), end))

    topic = in_memory.said.topic
    follower = open_view(topic, "cluster", in_memory.clock, state_dir=tmp_path, seed=watched, tail=False)
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
    # the one at 2 is of the log before it was truncated to 1: its end fits, its leader epoch does not
    assert used == [(3, 3), (2, 2)]
    follower.close()
    assert not list(tmp_path.rglob("tierstate-*"))


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
