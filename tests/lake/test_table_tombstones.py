"""Tables of a compacted topic, by a clock: rows stay only while no tombstone can have been removed unread."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.lake.tables import TableWorld
from tests.lake.test_table_history import unclean_election
from tests.lake.test_table_upsert import BYTES, COUNT, fold, keyed_topic, produce, require_log
from tests.lake.typed_logs import folder_of
from tests.lake.typed_tables import Make
from tests.twins.manual_clock import ManualClock
from tierstate.lake.compacted import CompactedLog
from tierstate.lake.log import TopicLog
from tierstate.lake.table_check import check_table
from tierstate.lake.table_follow import Step, TableLimits, look_at
from tierstate.lake.table_place import Seen
from tierstate.lake.table_shape import TableShape
from tierstate.lake.tombstones import Tombstones
from tierstate.runtime.operation import run
from tierstate.state.epochs import EpochEntry, LeaderEpoch, Lineage
from tierstate.state.errors import InvalidRequest
from tierstate.state.ids import TopicIdPartition
from tierstate.state.offsets import Extent, Offset, TimestampMs
from tierstate.state.retention import TopicConfig

pytestmark = pytest.mark.extended
KEPT_S = 100
IN_TIME_S, LATE_S = 74, 75
"""A quarter of the time is left for clocks that differ."""
RECORDS = keyed_topic()
COMPACTED = TopicConfig(cleanup_policy=frozenset({"compact"}))


class Cleaned(TableWorld):
    """A table of a topic whose cleaner keeps tombstones for `KEPT_S`."""

    clock: ManualClock
    kept_s = KEPT_S

    def log(self) -> TopicLog:
        log = super().log()
        log.tombstones = Tombstones(self.clock, self.kept_s * 1000)
        return log

    @property
    def seen(self) -> TimestampMs | None:
        seen = self.table().place().partitions[0].seen
        return seen and seen.at

    def steps(self, most: int = 30) -> list[Step]:
        """Run rounds until there is nothing to do, and return their steps."""
        steps = list[Step]()
        while (step := run(self.round()).step) is not Step.NOTHING:
            assert len(steps) < most
            steps.append(step)
        return steps


class Walked(TableWorld):
    """A table of a compacted topic that was tiered before: the leader names only the epochs of its local log."""

    def log(self) -> TopicLog:
        broker: Any = self
        facts = self.table().facts
        return CompactedLog(self.golden.reader, facts, self.access, SimpleNamespace(reads=broker), COMPACTED)  # type: ignore[arg-type]

    def lineage(self, topic: str, partition: TopicIdPartition, leader_epoch: LeaderEpoch) -> Lineage:
        """Return what `LocalReader.lineage` does."""
        return Lineage(tuple(EpochEntry(LeaderEpoch(at), Offset(start)) for at, start in self.golden.local.epochs))


@pytest.fixture
def world(golden_log: Make, tmp_path: Path) -> Cleaned:
    golden = golden_log(path=folder_of(tmp_path / "topic", RECORDS, a_batch=5, a_segment=40, apart_ms=3_600_000))
    limits = TableLimits(file_bytes=700, commit_bytes=1_500)
    world = Cleaned(golden, tmp_path / "table", columns=BYTES, limits=limits, shape=TableShape(), upsert=("key",))
    world.clock = ManualClock()
    produce(world, 160)
    assert set(world.steps()) == {Step.APPENDED}
    return world


def test_rows_that_were_all_in_time_stay(world: Cleaned) -> None:
    world.clock.advance(IN_TIME_S)
    produce(world, COUNT)
    assert Step.LOST_BRANCH not in world.steps()
    assert require_log(world) == fold(RECORDS, COUNT)


def test_after_a_longer_absence_the_log_is_folded_again_once(world: Cleaned) -> None:
    world.clock.advance(LATE_S)
    produce(world, COUNT)
    first, *rest = world.steps()
    assert first is Step.LOST_BRANCH
    assert set(rest) == {Step.APPENDED}
    assert require_log(world) == fold(RECORDS, COUNT)


def test_while_nothing_is_written_the_place_is_committed_again_in_time(world: Cleaned) -> None:
    for _ in range(8):
        world.clock.advance(KEPT_S / 4)
        assert world.steps() == [Step.RESTATED]
        assert world.seen == world.clock.now_ms()


def test_a_commit_that_leaves_records_for_the_next_proves_no_tombstone_read(world: Cleaned) -> None:
    seen = world.seen
    world.clock.advance(IN_TIME_S)
    produce(world, COUNT)
    assert run(world.round()).step is Step.APPENDED
    assert look_at(world.table(), world.log()).lag
    assert world.seen == seen
    world.clock.advance(LATE_S - IN_TIME_S)
    assert world.steps()[0] is Step.LOST_BRANCH


def test_a_place_has_the_time_before_its_end_was_read(world: Cleaned, monkeypatch: pytest.MonkeyPatch) -> None:
    extent = TopicLog.extent

    def slow(log: TopicLog, partition: int) -> Extent:
        world.clock.advance(1)
        return extent(log, partition)

    monkeypatch.setattr(TopicLog, "extent", slow)
    now = world.clock.now_ms()
    assert look_at(world.table(), world.log()).seen == {0: Seen(TimestampMs(now), KEPT_S * 1000)}


def test_records_that_were_read_for_too_long_are_not_committed(world: Cleaned) -> None:
    produce(world, COUNT)
    place, late = world.table().place(), world.round()
    next(late)
    world.clock.advance(LATE_S)
    assert run(late).step is Step.RACED
    assert world.table().place() == place
    assert world.steps()[0] is Step.LOST_BRANCH
    assert require_log(world) == fold(RECORDS, COUNT)


def test_a_first_commit_that_takes_longer_than_tombstones_stay_names_the_setting(world: Cleaned) -> None:
    world.clock.advance(LATE_S)
    assert run(world.round()).step is Step.LOST_BRANCH
    late = world.round()
    next(late)
    world.clock.advance(LATE_S)
    with pytest.raises(InvalidRequest, match=r"set the topic's delete\.retention\.ms higher"):
        run(late)


def test_a_fold_whose_commits_take_longer_than_tombstones_stay_is_refused_and_begins_again(world: Cleaned) -> None:
    world.clock.advance(LATE_S)
    assert run(world.round()).step is Step.LOST_BRANCH
    assert run(world.round()).step is Step.APPENDED
    world.clock.advance(LATE_S)
    with pytest.raises(InvalidRequest, match=r"set the topic's delete\.retention\.ms higher") as refused:
        run(world.round())
    facts = refused.value.facts
    assert (facts["topic"], facts["partition"], facts["seconds"]) == ("t", 0, LATE_S)
    assert world.rows().num_rows == 0
    assert set(world.steps()) == {Step.APPENDED}
    assert require_log(world) == fold(RECORDS, 160)
    world.clock.advance(LATE_S)
    assert world.steps()[0] is Step.LOST_BRANCH, "a fold that ended was not too slow"


def test_a_higher_setting_keeps_no_tombstone_of_before(world: Cleaned) -> None:
    world.kept_s = 10 * KEPT_S
    world.clock.advance(LATE_S)
    assert world.steps()[0] is Step.LOST_BRANCH
    world.clock.advance(LATE_S)
    assert Step.LOST_BRANCH not in world.steps()


def test_a_branch_that_is_lost_in_the_remote_tier_is_folded_again(golden_log: Make, tmp_path: Path) -> None:
    """The local log began after the first of two leader epochs. A replica that lacks the end of that epoch leads."""
    path = folder_of(tmp_path / "topic", RECORDS, a_batch=5, a_segment=40, epochs=[(0, 0), (3, 100)])
    world = Walked(golden_log(path=path), tmp_path / "table", columns=BYTES, shape=TableShape(), upsert=("key",))
    local = world.golden.local
    local.delete_records(120)
    assert local.epochs == [(3, 120)]
    world.follow()
    assert require_log(world) == fold(RECORDS, COUNT)
    local.local_start, local.epochs = 0, [(0, 0)]
    unclean_election(world, 9, 80)
    assert world.follow()[0].step is Step.LOST_BRANCH
    assert require_log(world) == fold(RECORDS, 80)


def test_another_tools_expiry_keeps_the_time_of_the_place(world: Cleaned) -> None:
    seen = world.seen
    iceberg: Any = world.table().iceberg
    with iceberg.transaction() as transaction, transaction.update_snapshot().fast_append():
        pass
    world.table().iceberg.maintenance.expire_snapshots().older_than(datetime.now() + timedelta(hours=1)).commit()
    assert len(world.table().iceberg.snapshots()) == 1
    assert world.seen == seen
    assert Step.LOST_BRANCH not in world.steps()


def test_the_check_leaves_out_rows_whose_records_the_cleaner_may_have_removed(world: Cleaned) -> None:
    produce(world, COUNT)
    later = {key for key, _ in RECORDS[160:] if key is not None}
    rows = fold(RECORDS, 160)
    older = [at for at in rows if RECORDS[at][0] in later]
    checked = check_table(world.table(), world.log(), window_bytes=2_000)
    [partition] = checked.partitions
    assert checked.findings == []
    assert (partition.rows, partition.older) == (len(rows) - len(older), len(older))
    assert older
