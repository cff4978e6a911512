"""`tierstate migrate`: an agent writes and a reader reads at every step, and the process dies at each of them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

import pytest

from tests.app.moving import PERIOD, FailsAt, NamedStore, World
from tests.twins.counting_ids import CountingIds
from tests.twins.manual_clock import ManualClock
from tierstate.app.looking.drill_reports import drills_prefix
from tierstate.app.operating.cluster_backup import backup_key
from tierstate.app.operating.migration import Cleanup, Migration, cancel, extent_of, standing_move, wait_for_writers
from tierstate.follower.heartbeat import Claimant
from tierstate.follower.movable_claim import MovableClaim
from tierstate.follower.move import ARRIVED, BEGUN, MOVED, read_move
from tierstate.follower.object_names import AGENTS
from tierstate.follower.prefix_claim import PrefixClaim
from tierstate.restore.names import step_key, steps_prefix
from tierstate.rules.prefix import SILENT_PERIODS
from tierstate.runtime.operation import run
from tierstate.state.errors import (
    AccessDenied,
    CorruptData,
    InvalidRequest,
    StorageUnavailable,
    Unavailable,
)
from tierstate.state.ids import TopicId
from tierstate.state.offsets import TimestampMs
from tierstate.storage import mirror
from tierstate.storage.mirror import Done, Mirror, Step
from tierstate.storage.object_store import MIB, Data


def test_all_objects_move_while_an_agent_writes_and_readers_read() -> None:
    world = World()
    assert world.migrate() > 8
    world.has_arrived()
    assert world.source.get("of somebody else") == b"1"
    assert "of somebody else" not in world.target.objects()
    assert world.migrate() == 1, "a move that has arrived is not begun again"


def test_a_migrate_that_dies_before_any_step_goes_on_when_it_is_run_again() -> None:
    steps = World().migrate()
    for stop_at in range(steps):
        world = World()
        world.migrate(stop_at)
        world.wait(PERIOD)
        world.migrate()
        world.has_arrived()


def test_a_migrate_goes_on_although_an_agent_that_woke_up_deleted_a_heartbeat_that_was_copied() -> None:
    steps, world = World().migrate(), World()
    world.migrate(steps - 1)
    world.source.delete_many([each.key for each in world.source.list(AGENTS)])
    move = standing_move(world.source, world.target, world.new_move)
    run(Migration(world.source, world.target, lambda: None, lambda: None).steps(move))
    assert read_move(world.target, ARRIVED) is not None


def test_a_store_that_fails_at_any_write_loses_nothing() -> None:
    for failing in count():
        world = World(FailsAt(failing))
        try:
            world.migrate()
        except StorageUnavailable:
            world.lives()
            world.migrate()
        else:
            world.has_arrived()
            break
        world.has_arrived()
    assert failing > 10


def test_until_the_move_arrives_it_can_be_cancelled_at_any_step_and_made_again() -> None:
    steps = World().migrate()
    for stop_at in range(2, steps - 1):
        world = World()
        world.migrate(stop_at)
        run(cancel(world.source, world.target))
        for _ in range(3):
            world.wait(PERIOD)
        assert world.source.get(max(world.live)) == world.live[max(world.live)], "the agent goes on at the source"
        world.migrate()
        world.has_arrived()
    with pytest.raises(InvalidRequest, match="have arrived"):
        run(cancel(world.source, world.target))


def test_old_copies_are_deleted_after_each_was_compared_and_readers_still_follow() -> None:
    world = World()
    with pytest.raises(InvalidRequest, match="not arrived"):
        world.finish()
    world.migrate()
    world.has_arrived()
    world.finish()
    assert world.source.objects() == {"of somebody else": b"1"}
    assert read_move(world.source, MOVED) is not None
    assert read_move(world.source, BEGUN) is None
    world.reads()


def test_an_old_copy_is_kept_if_the_new_one_differs_and_copied_if_it_is_missing() -> None:
    world = World()
    world.migrate()
    key = min(world.live)
    content = world.live.pop(key)
    world.target.delete(key)
    world.live[key] = content
    cleanup = Cleanup(world.source, world.target, list(world.live_bases), lambda: None)
    list(cleanup.steps())
    assert world.target.get(key) == content

    world = World()
    world.migrate()
    key = min(world.live)
    world.target.delete(key)
    world.target.put_if_absent(key, b"0")
    with pytest.raises(CorruptData, match="differ"):
        list(Cleanup(world.source, world.target, list(world.live_bases), lambda: None).steps())
    assert world.source.get(key) == world.live[key]


@pytest.mark.parametrize("small_bytes", [MIB, -1], ids=["in one piece", "streamed"])
def test_a_copy_that_arrives_damaged_does_not_count(monkeypatch: pytest.MonkeyPatch, small_bytes: int) -> None:
    world = World()
    monkeypatch.setattr(mirror, "SMALL_BYTES", small_bytes)

    class Lying(NamedStore):
        def put_if_absent(self, key: str, data: Data) -> None:
            super().put_if_absent(key, b"?" + bytes(data) if key.startswith("t/") else data)

        def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = 0) -> int:
            return super().put_stream(key, [b"?", *pieces])

    world.target = Lying("s3://new", world.clock, lambda *_: None)
    with pytest.raises(CorruptData, match="other bytes than its source"):
        world.migrate()
    assert not [key for key in world.target.objects() if key.startswith("t/")]
    world.wait(PERIOD)
    assert world.claim.proof.copy is None


def test_a_process_that_was_paused_during_the_move_makes_no_segment_readable() -> None:
    world = World()
    paused, place = world.claim, world.store
    place.put_if_absent("t/paused.log", b"1")
    world.clock.advance(4 * PERIOD)  # the process sleeps before its last check, and its proof ends
    with pytest.raises(Unavailable):
        paused.require(harms=False)


def test_a_store_that_refuses_the_heartbeat_is_named_where_copies_wait() -> None:
    def refuse(operation: str, key: str, writes: int) -> None:
        raise AccessDenied("the store refuses", code="InvalidAccessKeyId")

    world = World(refuse)
    world.clock.advance(4 * PERIOD)
    world.claim.beat()
    assert "InvalidAccessKeyId" in str(world.claim.proof.copy)


def test_no_agent_begins_at_a_target_to_which_objects_still_move() -> None:
    world = World()
    world.migrate(6)
    early = MovableClaim(
        world.topic, world.target, Claimant("cluster", 2, "h", "h:/", PERIOD, 0.0), world.clock, CountingIds(99)
    )
    early.beat()
    assert early.proof.copy is not None
    world.migrate()
    early.beat()
    world.wait(PERIOD)
    early.beat()
    assert early.proof.copy is None


def test_a_move_is_refused_to_a_store_in_use_and_a_second_one_elsewhere() -> None:
    world = World()
    world.target.put_if_absent("t/other.log", b"1")
    with pytest.raises(InvalidRequest, match="name an empty prefix"):
        world.migrate()
    world = World()
    world.migrate(4)
    other = NamedStore("s3://third", world.clock, lambda *_: None)
    with pytest.raises(InvalidRequest, match="another move"):
        standing_move(world.source, other, world.new_move)


def test_a_copy_of_the_cluster_does_not_follow_a_move_of_production() -> None:
    world = World()
    clone = world.topic.copied()
    world.migrate(6)
    claim = MovableClaim(
        clone, world.source, Claimant("cluster", 2, "h", "h:/", PERIOD, 0.0), world.clock, CountingIds(99)
    )
    world.migrate()
    claim.beat()
    assert "another cluster moves" in str(claim.contested)


def test_a_mirror_copies_deletes_and_compares_by_merged_listings() -> None:
    clock = ManualClock()
    source, target = (NamedStore(url, clock, lambda *_: None) for url in ("s3://a", "s3://b"))
    for key in ("a", "c", "empty", "r"):
        source.put_if_absent(key, b"" if key == "empty" else key.encode())
    target.put_if_absent("b", b"b")
    target.put_if_absent("r", b"R")
    steps = list(Mirror(source, target, lambda key: True).steps(clock.now_ms()))
    expected = {"a": Done.STREAMED, "b": Done.DELETED, "c": Done.STREAMED, "empty": Done.STREAMED, "r": Done.STREAMED}
    assert {step.key: step.done for step in steps} == expected
    assert source.objects() == target.objects()
    again = list(Mirror(source, target, lambda key: True).steps(clock.now_ms()))
    assert {step.done for step in again} == {Done.PROVEN}
    clock.advance(1)
    assert list(Mirror(source, target, lambda key: True).steps(clock.now_ms())) == []
    assert extent_of(source).foreign == 4
    assert isinstance(steps[0], Step)


def test_backups_offset_maps_and_drill_reports_move_too() -> None:
    world = World()
    keys = [backup_key("cluster", TimestampMs(1)), step_key(steps_prefix("c", TopicId("A" * 21 + "Q"), 0), 0)]
    keys.append(f"{drills_prefix('cluster')}000000000000001-good")
    for key in keys:
        world.source.put_if_absent(key, b"1")
    world.migrate()
    assert [world.target.get(key) for key in keys] == [b"1"] * 3


def test_an_agent_of_an_earlier_release_is_waited_for_until_it_has_ended() -> None:
    world = World()
    world.claim.leave()
    older = PrefixClaim(
        world.topic, world.source, Claimant("cluster", 2, "host2", "h:/", PERIOD, 0.0), world.clock, CountingIds(98)
    )
    told = list[str]()

    class Clock(ManualClock):
        def sleep(self, seconds: float) -> None:
            world.clock.advance(seconds)
            self.advance(seconds)
            if self.monotonic() - began < 10 * PERIOD:
                older.beat()

    clock = Clock()
    began = clock.monotonic()
    older.beat()
    wait_for_writers(world.source, "cluster", PERIOD, clock, told.append)
    assert told[0] == "broker 2 at host2"
    waited = clock.monotonic() - began
    assert (10 + SILENT_PERIODS - 1) * PERIOD < waited < (10 + SILENT_PERIODS + 1) * PERIOD
