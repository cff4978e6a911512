"""Another engine's maintenance or a restored catalog ends no table: its place is kept twice, and in its rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copy

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from tests.fetch.two_tiers import Golden
from tests.lake.tables import NAME, TableWorld
from tests.lake.test_table_check import change, problems
from tests.lake.test_table_history import delete_below
from tests.twins.counting_ids import CountingIds
from tierstate.lake.table import Change, LakeTable, PlaceLost
from tierstate.lake.table_check import check_table
from tierstate.lake.table_commit import commit
from tierstate.lake.table_files import Attempt
from tierstate.lake.table_follow import Step
from tierstate.lake.table_place import OFFSETS, PLACE, Reach
from tierstate.lake.table_repair import newer_metadata, repair
from tierstate.lake.table_snapshots import expire
from tierstate.lake.table_upkeep import compact
from tierstate.runtime.operation import run
from tierstate.state.errors import CorruptData, InvalidRequest
from tierstate.state.ids import FactId
from tierstate.state.offsets import Offset

pytestmark = pytest.mark.extended

Make = Callable[..., Golden]
IDS = CountingIds(31)


def fresh() -> str:
    return FactId.of(IDS.uuid())


@pytest.fixture
def world(golden_log: Make, tmp_path: Path) -> TableWorld:
    made = TableWorld(golden_log("transactions"), tmp_path)
    made.follow()
    return made


def foreign_maintenance(world: TableWorld, *, of_earlier_version: bool = False) -> Table:
    """Another engine commits and expires every other snapshot. Tables of earlier versions have no place property."""
    iceberg = world.table().iceberg
    with iceberg.transaction() as transaction:
        if of_earlier_version:
            transaction.remove_properties(PLACE)
        with transaction.update_snapshot().fast_append():
            pass
    head = iceberg.refresh().current_snapshot()
    assert head is not None
    others = [each.snapshot_id for each in iceberg.snapshots() if each.snapshot_id != head.snapshot_id]
    iceberg.maintenance.expire_snapshots().by_ids(others).commit()
    return iceberg


def test_a_table_goes_on_after_another_engine_expired_every_snapshot_with_a_place(world: TableWorld) -> None:
    place = world.table().place()
    foreign_maintenance(world)
    assert world.table().place() == place
    assert [each.step for each in world.follow()] == [Step.RESTATED]
    delete_below(world, 777)
    assert world.follow()
    assert world.table_digest() == world.log_digest()


def test_a_place_that_does_not_fit_the_rows_is_not_believed(world: TableWorld) -> None:
    first = world.first_offset()
    change(world, lambda rows: rows.slice(1), first, first)
    foreign_maintenance(world)
    with pytest.raises(PlaceLost, match=f"tierstate table repair {NAME}"):
        world.table().place()
    done = repair(world.table(), world.log(), fresh, execute=True)
    assert done.checked is not None
    assert [each.offset for each in done.checked.findings] == [], "the rows begin later, and all of them are the log's"
    assert world.table().place().partitions[0].start > first


def test_a_place_that_ends_below_the_rows_is_not_believed(world: TableWorld) -> None:
    """It has as many rows as the table, but other ones."""
    iceberg = foreign_maintenance(world).refresh()
    place = {**json.loads(iceberg.properties[PLACE]), OFFSETS: json.dumps({"0": 100})}
    with iceberg.transaction() as transaction:
        transaction.set_properties({PLACE: json.dumps(place)})
    with pytest.raises(PlaceLost):
        world.table().place()


def test_a_place_that_is_newer_than_the_rows_is_not_believed(world: TableWorld) -> None:
    """Another tool rolled the table back, to as many rows."""
    iceberg = world.table().iceberg
    with iceberg.transaction() as transaction, transaction.update_snapshot().fast_append():
        pass
    earlier = world.table().head
    assert earlier is not None
    assert run(world.round()).step is Step.RESTATED
    world.table().iceberg.manage_snapshots().set_current_snapshot(earlier.snapshot_id).commit()
    table = world.table()
    assert expire(table, [each.snapshot_id for each in table.iceberg.snapshots() if each != earlier])
    with pytest.raises(PlaceLost):
        world.table().place()


def test_a_repair_finds_the_place_in_the_rows_and_the_table_goes_on(golden_log: Make, tmp_path: Path) -> None:
    world = TableWorld(golden_log("transactions"), tmp_path)
    run(world.round())
    run(world.round())
    place = world.table().place()
    foreign_maintenance(world, of_earlier_version=True)
    dry = repair(world.table(), world.log(), fresh, execute=False)
    assert dry.place is not None
    with pytest.raises(PlaceLost):
        world.table().place()
    assert repair(world.table(), world.log(), fresh, execute=True).place == dry.place == world.table().place()
    assert world.table().place().partitions[0].lineage == place.partitions[0].lineage
    world.follow()
    assert world.table_digest() == world.log_digest()
    assert not problems(world)
    assert repair(world.table(), world.log(), fresh, execute=True).place is None


def test_a_repair_writes_nothing_where_a_row_is_not_the_logs(world: TableWorld) -> None:
    def other(rows: pa.Table) -> pa.Table:
        at = rows.schema.get_field_index("value")
        return rows.set_column(at, rows.field(at), pa.array([b"forged"] * rows.num_rows, rows.field(at).type))

    change(world, other, 300, 310)
    foreign_maintenance(world, of_earlier_version=True)
    done = repair(world.table(), world.log(), fresh, execute=True)
    assert done.checked is not None
    assert [each.problem for each in done.checked.findings] == ["the column value is not the log's"]
    with pytest.raises(PlaceLost):
        world.table().place()


def test_an_archive_whose_records_exist_nowhere_else_is_repaired(golden_log: Make, tmp_path: Path) -> None:
    world = TableWorld(golden_log("transactions"), tmp_path, keep=True)
    world.follow()
    delete_below(world, 777)
    before = world.table_digest()
    foreign_maintenance(world, of_earlier_version=True)
    assert repair(world.table(), world.log(), fresh, execute=True).place is not None
    assert all(each.rows == 0 for each in world.follow())
    assert world.table_digest() == before


def with_a_file_of_two_partitions(world: TableWorld) -> LakeTable:
    """Add rows of partition 7 to files of partition 0, as another engine's rewriting may do."""

    def two(rows: pa.Table) -> pa.Table:
        at = rows.schema.get_field_index("partition")
        other = rows.set_column(at, rows.field(at), pa.array([7] * rows.num_rows, pa.int32()))
        return pa.concat_tables([other, rows])

    change(world, two, 300, 310)
    table = world.table()
    place = table.place().with_({7: Reach(Offset(300), Offset(311))})
    assert run(commit(table, Attempt(fresh()), Change(place)))
    return world.table()


def test_a_file_of_several_partitions_is_compacted_into_one_of_each(world: TableWorld) -> None:
    before = with_a_file_of_two_partitions(world).iceberg.scan().to_arrow()
    compact(world.table(), fresh, execute=True)
    order = [("partition", "ascending"), ("offset", "ascending")]
    after = world.table().iceberg.scan().to_arrow()
    assert after.sort_by(order).equals(before.sort_by(order))
    for file in world.named_files():
        assert len(set(pq.read_table(file).column("partition").to_pylist())) == 1


def test_deleted_records_leave_a_file_of_several_partitions(world: TableWorld) -> None:
    with_a_file_of_two_partitions(world)
    before = [row["offset"] for row in world.rows().to_pylist() if row["partition"] == 7]
    middle = before[len(before) // 2]
    assert before[0] < middle
    delete_below(world, middle)
    world.follow()
    rows = world.rows().to_pylist()
    assert [row["offset"] for row in rows if row["partition"] == 7] == before
    assert min(row["offset"] for row in rows if row["partition"] == 0) >= middle


def test_a_catalog_older_than_its_files_is_brought_to_the_newest_metadata(golden_log: Make, tmp_path: Path) -> None:
    world = TableWorld(golden_log("transactions"), tmp_path)
    run(world.round())
    copy(world.folder / "catalog.db", backup := world.folder / "backup.db")
    world.follow()
    place, before, newest = world.table().place(), world.table_digest(), world.table().iceberg.metadata_location
    copy(backup, world.folder / "catalog.db")
    newer = newer_metadata(world.table())
    assert newer is not None
    assert newer.url == newest
    with world.catalog() as catalog:
        catalog.point(NAME, newer.url)
    assert (world.table().place(), world.table_digest()) == (place, before)
    assert newer_metadata(world.table()) is None


def test_a_table_whose_metadata_file_is_gone_is_found_in_its_folder(world: TableWorld) -> None:
    """A follower deletes the metadata file of twenty commits ago, which a backup of the catalog may name."""
    copy(world.folder / "catalog.db", backup := world.folder / "backup.db")
    location, old = world.table().iceberg.location(), world.table().iceberg.metadata_location
    for _ in range(22):
        run(commit(world.table(), Attempt(fresh()), Change(world.table().place())))
    place = world.table().place()
    copy(backup, world.folder / "catalog.db")
    assert not Path(old.removeprefix("file://")).exists()
    with world.catalog() as catalog:
        with pytest.raises(CorruptData, match="a file of the table is missing"):
            catalog.table(NAME)
        catalog.point(NAME, catalog.table_at(NAME, location).iceberg.metadata_location)
    assert world.table().place() == place
    assert not check_table(world.table(), world.log()).findings


def test_neither_of_two_catalogs_that_both_went_on_is_taken(world: TableWorld) -> None:
    backup, live = world.folder / "backup.db", world.folder / "live.db"
    copy(world.folder / "catalog.db", backup)
    for aside in (live, world.folder / "other.db"):
        run(commit(world.table(), Attempt(fresh()), Change(world.table().place())))
        copy(world.folder / "catalog.db", aside)
        copy(backup, world.folder / "catalog.db")
    with pytest.raises(InvalidRequest, match="two catalogs committed to this table"):
        newer_metadata(world.table())
    with world.catalog() as catalog:
        with pytest.raises(InvalidRequest, match="several metadata files may be the newest"):
            catalog.table_at(NAME, world.table().iceberg.location())
