"""The view from the bucket where the archive was cut off, compacted before it was written, or is old."""

from __future__ import annotations

import pytest

from tests.follower.archived import DAY_MS, Archived, run
from tierstate.follower.archive import cut_archive
from tierstate.follower.archive_piece import WINDOW
from tierstate.follower.bucket_view import NEWEST, BucketView, Moment, find_identity, open_bucket_view
from tierstate.follower.checkpoint import checkpoint
from tierstate.follower.digests import live_set_digest
from tierstate.follower.replay import catch_up
from tierstate.follower.time_travel import Target
from tierstate.schemas.codec import decode_fact
from tierstate.state.errors import InvalidRequest, TierstateError
from tierstate.state.view import MemoryView


def opened(world: Archived, moment: Moment = NEWEST) -> BucketView:
    identity, parted = find_identity(world.store)
    assert (identity, parted) == (world.identity, None)
    return open_bucket_view(world.store, identity, moment, refused)


def refused(key: str, error: TierstateError) -> None:
    raise AssertionError(f"{key} was passed over: {error}")


def checkpointed(world: Archived) -> Archived:
    run(checkpoint(world.topic, world.shelf, world.clock, 3, lambda: MemoryView(decode_fact, 1), refused))
    return world


def digest(world: Archived, view: BucketView) -> tuple[str, str]:
    """Return the digests of the topic as it is now, and of the view."""
    now = MemoryView(decode_fact, 1)
    catch_up(world.topic, now, {0: world.topic.end(0)})
    return live_set_digest(now.entries()).hexdigest(), live_set_digest(view.entries()).hexdigest()


@pytest.fixture
def cut() -> Archived:
    """Return a world with a checkpoint below the base with which its cut archive begins."""
    world = Archived()
    world.append(50)
    checkpointed(world)
    world.append(WINDOW)
    run(world.archive())
    world.clock.advance(DAY_MS / 1000)
    run(cut_archive(world.shelf, world.clock.now_ms(), lambda: MemoryView(decode_fact, 1)))
    assert world.ranges[0][0] == WINDOW
    return world


@pytest.mark.extended
def test_a_checkpoint_from_before_the_cut_is_not_gone_on_from(cut: Archived) -> None:
    now, then = digest(cut, opened(cut))
    assert now == then


@pytest.mark.extended
def test_a_checkpoint_after_the_cut_is(cut: Archived) -> None:
    checkpointed(cut).append(20)
    run(cut.archive())
    now, then = digest(cut, opened(cut))
    assert now == then


def test_a_checkpoint_is_never_too_old_for_the_archive_has_what_came_after() -> None:
    world = Archived()
    world.append(30)
    checkpointed(world).clock.advance(100 * DAY_MS / 1000)
    world.append(30)  # tombstones among them
    run(world.archive())
    now, then = digest(world, opened(world))
    assert now == then


def test_what_was_compacted_away_is_counted_from_the_checkpoint_on() -> None:
    world = Archived()
    world.append(10)
    checkpointed(world).append(20)
    world.topic.cleaned = {4, 20}
    run(world.archive())
    assert world.ranges == [(0, 29)]
    assert opened(world).replays[0].holes == 1
    world.store.delete(world.place.checkpoint(10))
    assert opened(world).replays[0].holes == 2


def test_a_time_before_the_cut_is_refused(cut: Archived) -> None:
    too_early = Moment(Target(time=cut.said()[60][1]))
    with pytest.raises(InvalidRequest, match="begins after this time"):
        opened(cut, too_early)


def test_a_checkpoint_of_records_that_the_topic_lost_is_passed_over() -> None:
    """The tail of the tier-state topic was lost after the checkpoint and before anything of it was archived."""
    world = Archived()
    world.append(10)
    run(world.archive())
    other = world.forked()
    world.append(10)
    checkpointed(world)
    key = world.place.checkpoint(20)
    other.store.put_if_absent(key, world.store.get(key))
    other.append(15, b"another ")
    run(other.archive())
    passed: list[str] = []
    view = open_bucket_view(other.store, other.identity, NEWEST, lambda key, error: passed.append(f"{key}: {error}"))
    now, then = digest(other, view)
    assert now == then
    assert len(passed) == 1
    assert passed[0].startswith(f"{key}: the checkpoint has records that the topic lost")


def test_a_view_advances_to_what_was_archived_since() -> None:
    world = Archived()
    world.append(30)
    checkpointed(world)
    view = opened(world)
    for _ in range(2):
        world.append(20)  # tombstones among them
        run(world.archive())
        view.advance(world.store, world.identity, refused)
        now, then = digest(world, view)
        assert now == then
    assert (view.replays[0].position, view.replays[0].newest_timestamp) == (70, world.said()[-1][1])


@pytest.mark.extended
def test_a_view_that_a_cut_has_passed_is_read_again() -> None:
    world = Archived()
    world.append(50)
    run(world.archive())
    view = opened(world)
    world.append(WINDOW)
    run(world.archive())
    world.clock.advance(DAY_MS / 1000)
    run(cut_archive(world.shelf, world.clock.now_ms(), lambda: MemoryView(decode_fact, 1)))
    view.advance(world.store, world.identity, refused)
    now, then = digest(world, view)
    assert now == then


def test_a_view_from_a_checkpoint_of_records_that_the_topic_lost_is_read_again() -> None:
    """The checkpoint was read before the archive had the records that took the places of the lost ones."""
    world = Archived()
    world.append(10)
    run(world.archive())
    other = world.forked()
    world.append(10)
    checkpointed(world)
    key = world.place.checkpoint(20)
    other.store.put_if_absent(key, world.store.get(key))
    view = open_bucket_view(other.store, other.identity, NEWEST, refused)
    assert view.replays[0].position == 20
    other.append(15, b"another ")
    run(other.archive())
    passed: list[str] = []
    view.advance(other.store, other.identity, lambda key, error: passed.append(key))
    now, then = digest(other, view)
    assert now == then
    assert passed == [key]
