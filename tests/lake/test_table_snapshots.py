"""A table keeps few snapshots, so that its commits stay cheap, and keeps what readers of the others need."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from copy import deepcopy
from itertools import pairwise
from pathlib import Path

import pytest
from pyiceberg.table.metadata import TableMetadata

from tests.fetch.two_tiers import Golden
from tests.lake.tables import TableWorld
from tierstate.lake.table import LakeTable
from tierstate.lake.table_snapshots import Retention, expire, surplus
from tierstate.lake.table_upkeep import compact, strays, sweep
from tierstate.runtime.clock import SystemClock
from tierstate.state.offsets import TimestampMs

pytestmark = pytest.mark.extended

Make = Callable[..., Golden]
MINUTE_MS, DAY_MS = 60_000, 86_400_000
NOW = TimestampMs(SystemClock().now_ms() + 60_000)


def later() -> TimestampMs:
    return TimestampMs(SystemClock().now_ms() + 1000)


@pytest.fixture
def world(golden_log: Make, tmp_path: Path) -> TableWorld:
    made = TableWorld(golden_log("transactions"), tmp_path)
    made.follow()
    return made


def with_past(table: LakeTable, ages_ms: Sequence[int]) -> TableMetadata:
    """Make the loaded table have older copies of its first snapshot, of these ages."""
    metadata = table.iceberg.metadata
    first = min(metadata.snapshots, key=lambda each: each.sequence_number or 0)
    past = [
        first.model_copy(update={"snapshot_id": number, "sequence_number": -number, "timestamp_ms": NOW - age})
        for number, age in enumerate(ages_ms, 1)
    ]
    table.iceberg.metadata = metadata.model_copy(update={"snapshots": [*past, *metadata.snapshots]})
    return table.iceberg.metadata


def test_a_day_of_commits_a_minute_leaves_a_bounded_number_that_spans_the_day(world: TableWorld) -> None:
    table = world.table()
    metadata = with_past(table, [MINUTE_MS * number for number in range(1, 3 * 1440)])
    expired = set(surplus(table, Retention(50, DAY_MS), NOW))
    kept = sorted(each.timestamp_ms for each in metadata.snapshots if each.snapshot_id not in expired)
    assert 98 <= len(kept) <= 101
    assert NOW - DAY_MS <= kept[0] < NOW - DAY_MS * 0.96
    assert max(later - earlier for earlier, later in pairwise(kept)) <= 2 * DAY_MS / 50
    newest = sorted(each.timestamp_ms for each in metadata.snapshots)[-50:]
    assert kept[-50:] == newest


def test_what_a_follower_kept_once_it_keeps_again(world: TableWorld) -> None:
    """Otherwise it would expire some at each look, and none would become old."""
    table = world.table()
    metadata = with_past(table, [MINUTE_MS * number for number in range(1, 3 * 1440)])
    expired = set(surplus(table, Retention(50, DAY_MS), NOW))
    left = [each for each in metadata.snapshots if each.snapshot_id not in expired]
    table.iceberg.metadata = metadata.model_copy(update={"snapshots": left})
    assert not surplus(table, Retention(50, DAY_MS), NOW)


def test_a_reader_of_an_expired_snapshot_finds_its_files_after_a_compaction(world: TableWorld) -> None:
    small = world.named_files()
    for each in small:
        os.utime(each, (1, 1))
    assert compact(world.table(), world.attempt_id, execute=True).commits == 1
    table = world.table()
    assert expire(table, expired := surplus(table, Retention(1, DAY_MS), later()))
    assert expired
    stray_files = strays(table, TimestampMs(later() - DAY_MS))
    sweep(table, stray_files, lambda _: None)
    assert small <= world.data_files()


def test_two_followers_that_expire_the_same_snapshots_disturb_neither(world: TableWorld) -> None:
    one, other = world.table(), world.table()
    ids = surplus(one, Retention(1, 0), later())
    assert ids
    assert expire(one, ids) is True
    assert expire(other, ids) is False
    assert world.table_digest() == world.log_digest()


def test_a_commit_copies_no_snapshot_and_no_schema(world: TableWorld) -> None:
    """pyiceberg copies a table's metadata 17 times per commit: with 300 snapshots that took 0.2 s."""
    metadata = world.table().iceberg.metadata
    copy = deepcopy(metadata)
    for part in ("snapshots", "schemas", "partition_specs", "sort_orders"):
        pairs = zip(getattr(copy, part), getattr(metadata, part), strict=True)
        assert all(copied is original for copied, original in pairs)
