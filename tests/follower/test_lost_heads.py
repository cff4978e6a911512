"""A tier-state partition lost its head: no process takes the rest for the whole, and all waiting callers hear it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.follower.archived import Archived, run
from tests.follower.checkpointed import World
from tests.follower.said import PARTITIONS, Topic, elected, log_start, partition
from tests.follower.test_hosted_partitions import MINE, NUMBER, THEIRS, Hosted, speak
from tests.twins.manual_clock import ManualClock
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.fetch.recent_views import RecentViews
from tierstate.follower.follower import Follower
from tierstate.follower.following import Following, Seed
from tierstate.follower.open import open_view
from tierstate.follower.time_travel import replay_topic
from tierstate.runtime.clock import SystemClock
from tierstate.schemas.codec import decode_fact
from tierstate.state.errors import TierStateLost
from tierstate.state.offsets import Position
from tierstate.state.view import MemoryView, ViewStore

LOST = rf"partition {NUMBER} of .* begins at \d: its head is gone .*tierstate recover"


@pytest.fixture
def told(said: Topic) -> Topic:
    """Return a topic with five facts in one tier-state partition."""
    speak(said, MINE, epoch=1), speak(said, MINE, epoch=2)
    said.say(log_start(MINE, 300, elected(MINE, 2, 10 * MINE + 2), 2, counter=2))
    return said


@pytest.fixture
def hosted(said: Topic, tmp_path: Path) -> Iterator[Hosted]:
    state = Hosted(said.topic, tmp_path)
    yield state
    state.follower.close()


def followed(topic: MemoryTierTopic, state: Path | None = None, *, tail: bool = False) -> Follower:
    return open_view(topic, "cluster", ManualClock(), Following(tail=tail), state_dir=state)


@pytest.mark.parametrize("to", [1, 4, 5])
def test_a_view_from_nothing_is_never_made_of_what_is_left(told: Topic, to: int) -> None:
    told.topic.cut_head(NUMBER, to)
    follower = followed(told.topic)
    with pytest.raises(TierStateLost, match=LOST):
        follower.require_fresh(NUMBER, 0)
    with pytest.raises(TierStateLost, match=LOST):
        follower.wait_applied(NUMBER, Position(4), 0)
    assert follower.store.position(NUMBER) == 0


def test_a_caller_that_waits_for_the_tail_gets_the_error_and_the_tail_lives_on(told: Topic) -> None:
    told.topic.cut_head(NUMBER, 3)
    follower = followed(told.topic, tail=True)
    with pytest.raises(TierStateLost, match=LOST):
        follower.require_fresh(NUMBER, 0)
    assert (type(follower.trouble), follower.failure) == (TierStateLost, None)
    told.topic.cut_head(NUMBER, 0)  # a replica with the whole log leads again
    for _ in range(200):
        if follower.trouble is None:
            break
        SystemClock().sleep(0.05)
    follower.require_fresh(NUMBER, 0)
    assert follower.partition(partition(MINE)).log_start == 300
    follower.close()


@pytest.mark.parametrize("position", [3, 5])
def test_a_view_that_has_consumed_what_is_gone_goes_on(told: Topic, tmp_path: Path, position: int) -> None:
    follower = followed(told.topic, tmp_path)
    follower.require_fresh(NUMBER, 0)
    follower.close()
    told.topic.cut_head(NUMBER, position)
    speak(told, MINE, epoch=3)
    follower = followed(told.topic, tmp_path)
    follower.require_fresh(NUMBER, 0)
    assert len(follower.facts(partition(MINE))) == 7
    follower.close()


def test_a_view_that_has_not_consumed_all_that_is_gone_is_lost_and_cannot_be_rebuilt(
    told: Topic, tmp_path: Path
) -> None:
    follower = followed(told.topic, tmp_path)
    follower.require_fresh(NUMBER, 0)
    speak(told, MINE, epoch=3)
    told.topic.cut_head(NUMBER, 6)
    with pytest.raises(TierStateLost, match=LOST):
        follower.require_fresh(NUMBER, 0)
    assert follower.lost is not None
    with pytest.raises(TierStateLost):
        follower.require_fresh(NUMBER, 3600)  # a view that was fresh a moment ago does not count, either
    follower.close()
    with pytest.raises(TierStateLost):
        followed(told.topic, tmp_path / "empty")


@pytest.mark.parametrize(("to", "saved"), [(1, True), (2, True), (3, False)])
def test_a_checkpoint_saves_a_view_only_at_or_above_where_the_log_begins(
    in_memory: World, tmp_path: Path, to: int, saved: bool
) -> None:
    world = in_memory.checkpoints(7)
    world.speak(8, 9)
    world.said.topic.cut_head(world.number, to)

    def seed(store: ViewStore, number: int, end: Position) -> object:
        return world.start(store, number=number, end=end)

    if not saved:
        with pytest.raises(TierStateLost):
            seeded(world, tmp_path, seed)
        return
    follower = seeded(world, tmp_path, seed)
    follower.require_fresh(world.number, 0)
    assert follower.partition(partition(0)).log_start == 9
    follower.close()


def seeded(world: World, state: Path, seed: Seed) -> Follower:
    return open_view(world.said.topic, "cluster", world.clock, Following(tail=False, seed=seed), state_dir=state)


def test_a_partition_is_not_taken_back_from_what_is_left(said: Topic, hosted: Hosted) -> None:
    speak(said, MINE), speak(said, THEIRS)
    hosted.follower.require_fresh(NUMBER, 0)
    said.topic.cut_head(NUMBER, 3)
    hosted.host(MINE, THEIRS)
    with pytest.raises(TierStateLost, match=LOST):
        hosted.follower.require_fresh(NUMBER, 0)
    assert hosted.follower.partitions() == [partition(MINE)]
    hosted.restart()
    with pytest.raises(TierStateLost, match=LOST):
        hosted.follower.require_fresh(NUMBER, 0)


def test_no_read_goes_on_from_half_a_view(told: Topic) -> None:
    told.topic.cut_head(NUMBER, 3)
    views = RecentViews(followed(told.topic), ManualClock())
    for _ in range(2):
        with pytest.raises(TierStateLost, match=LOST):
            views.require(NUMBER)


def test_no_past_view_is_built_from_what_is_left(told: Topic) -> None:
    told.topic.cut_head(NUMBER, 3)
    view = MemoryView(decode_fact, PARTITIONS)
    with pytest.raises(TierStateLost, match=LOST):
        replay_topic(told.topic, NUMBER, view, SystemClock().now_ms())


def test_no_checkpoint_is_written_of_what_is_left(in_memory: World) -> None:
    in_memory.speak(7, 8)
    in_memory.said.topic.cut_head(in_memory.number, 2)
    with pytest.raises(TierStateLost):
        run(in_memory.act())
    assert list(in_memory.objects.list()) == []


def test_a_checkpoint_is_continued_while_it_reaches_what_is_left(in_memory: World) -> None:
    world = in_memory.checkpoints(7)
    world.said.topic.cut_head(world.number, 2)
    world.checkpoints(8)
    assert [name.position for name in world.names] == [2, 3]
    world.speak(9, 10)
    world.said.topic.cut_head(world.number, 4)
    with pytest.raises(TierStateLost):
        run(world.act())


@pytest.mark.parametrize("archived", [0, 3])
def test_the_archive_is_not_continued_over_what_is_gone(archived: int) -> None:
    world = Archived().archived(*([archived] if archived else []))
    world.append(7)
    world.topic.cut_head(0, archived + 2)
    before = world.ranges
    with pytest.raises(TierStateLost, match="its head is gone"):
        run(world.archive())
    assert world.ranges == before
