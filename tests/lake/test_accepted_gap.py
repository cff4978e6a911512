"""Exports and tables at a gap that a person accepted: they go on behind it, and report what they skipped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fetch.test_accepted_gap import accept
from tests.fetch.two_tiers import Golden
from tests.lake.exports import World
from tests.lake.tables import TableWorld
from tierstate.fetch.planned_split import Skipped
from tierstate.lake.export_check import check
from tierstate.lake.names import manifest_key
from tierstate.lake.table_check import CheckedTable, check_table
from tierstate.state.offsets import Offset

Make = Callable[..., Golden]


@pytest.fixture
def world(golden_log: Make) -> World:
    return World(golden_log(copies=1))


@pytest.fixture(params=[False, True], ids=["table", "archive"])
def tables(request: pytest.FixtureRequest, golden_log: Make, tmp_path: Path) -> TableWorld:
    return TableWorld(golden_log(copies=1), tmp_path, keep=request.param)


def gap_of(golden: Golden) -> Skipped:
    start, end = accept(golden)
    return Skipped(0, Offset(start), Offset(end))


def manifests(world: World) -> Iterator[dict[str, Any]]:
    for plan in world.ledger.plans():
        yield json.loads(world.place.get(manifest_key(plan)))


def checked(tables: TableWorld) -> CheckedTable:
    done = check_table(tables.table(), tables.log())
    assert done.findings == []
    return done


def test_an_export_names_the_accepted_gap_and_has_all_else(world: World) -> None:
    gap = gap_of(world.golden)
    done = world.export().do(world.wanted())
    assert (done.records, done.skipped) == (world.digest()[0], [gap])
    [manifest] = manifests(world)
    assert manifest["skipped"] == [list(gap)]
    assert not any(start < gap.end and end > gap.start for _, start, end in manifest["tasks"])
    report = check(world.export())
    assert (report.findings, report.records, report.by_bytes) == ([], done.records, 0)
    again = world.export().do(world.wanted())
    assert (again.plans, again.skipped) == ([], [gap])


def test_an_export_that_met_no_gap_says_nothing_of_one(world: World) -> None:
    world.golden.local.local_start = world.golden.folder.bases[1]
    assert world.export().do(world.wanted()).skipped == []
    assert "skipped" not in next(manifests(world))


def test_restored_records_are_exported_by_the_next_export(world: World) -> None:
    gap = gap_of(world.golden)
    before = world.export().do(world.wanted())
    world.golden.tiers.copy(world.golden.folder, gap.start, gap.end)
    after = world.export().do(world.wanted())
    assert after.skipped == []
    assert before.records + after.records == world.digest()[0]
    assert check(world.export()).findings == []


def test_a_gap_that_was_accepted_after_an_export_had_begun_is_in_its_manifest(world: World) -> None:
    world.file_bytes = 10**9  # one task, with records before, in and behind the gap
    plan = world.export().next_plan(world.wanted())
    assert plan is not None
    world.ledger.add(plan)
    gap = gap_of(world.golden)
    done = world.export().do(world.wanted())
    assert (done.records, done.skipped) == (world.digest()[0], [gap])
    assert next(manifests(world))["skipped"] == [list(gap)]
    assert check(world.export()).findings == []


def test_files_of_records_that_were_lost_later_are_checked_by_their_bytes(world: World) -> None:
    world.export().do(world.wanted())
    gap_of(world.golden)
    report = check(world.export())
    assert report.findings == []
    assert report.by_bytes > 0


def test_a_table_goes_on_behind_the_accepted_gap_and_its_check_names_it(tables: TableWorld) -> None:
    gap = gap_of(tables.golden)
    rounds = tables.follow()
    assert sum(each.missed for each in rounds) == gap.end - gap.start
    assert tables.table_digest() == tables.log_digest()
    [partition] = checked(tables).partitions
    assert (partition.skipped, partition.older, partition.behind) == ([gap], 0, 0)
    assert partition.digest == tables.log_digest()[1]


def test_a_table_whose_log_ends_with_an_accepted_gap_is_at_its_end(tables: TableWorld) -> None:
    local = tables.golden.local
    local.high_watermark = local.last_stable_offset = tables.golden.folder.bases[2]
    gap = gap_of(tables.golden)
    tables.follow()
    [partition] = checked(tables).partitions
    assert (partition.end, partition.skipped, partition.behind) == (gap.end, [gap], 0)
    local.high_watermark = local.last_stable_offset = tables.golden.folder.end()
    tables.follow()
    assert tables.table_digest() == tables.log_digest()
    checked(tables)


def test_rows_of_records_that_were_lost_later_stay_and_count_as_older(tables: TableWorld) -> None:
    tables.follow()
    whole = tables.table_digest()
    gap = gap_of(tables.golden)
    assert tables.follow() == []
    assert tables.table_digest() == whole
    [partition] = checked(tables).partitions
    assert partition.skipped == [gap]
    assert partition.rows + partition.older == whole[0]
    assert partition.older > 0
