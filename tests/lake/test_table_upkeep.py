"""Upkeep changes no row: large files replace small ones, old snapshots and strays go, and a second run does nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import copy

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.update import SetLocationUpdate

from tests.fetch.two_tiers import Golden
from tests.lake.tables import NAME, TableWorld
from tests.lake.test_table_history import delete_below
from tests.operations import run_until
from tests.twins.counting_ids import CountingIds
from tierstate.lake.table import Change
from tierstate.lake.table_catalog import LakeCatalog
from tierstate.lake.table_files import Attempt
from tierstate.lake.table_follow import Step
from tierstate.lake.table_metadata import foreign_metadata
from tierstate.lake.table_snapshots import expire, old_snapshots
from tierstate.lake.table_upkeep import Compacted, bins, compact, compact_bins, strays, sweep
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.operation import run
from tierstate.state.errors import CorruptData
from tierstate.state.ids import FactId
from tierstate.state.offsets import TimestampMs

pytestmark = pytest.mark.extended

Make = Callable[..., Golden]
LATER = TimestampMs(SystemClock().now_ms() + 10**9)
DAYS = 2
"""The number of days of the golden log's records."""
IDS = CountingIds(7)


def fresh() -> str:
    return FactId.of(IDS.uuid())


@pytest.fixture
def world(golden_log: Make, tmp_path: Path) -> TableWorld:
    made = TableWorld(golden_log("transactions"), tmp_path)
    made.follow()
    return made


def test_small_files_become_one_and_every_row_stays(world: TableWorld) -> None:
    before, place, files = world.table_digest(), world.table().place(), len(world.named_files())
    done = compact(world.table(), fresh, execute=True)
    assert done == Compacted(small=files, large=DAYS, commits=1)
    assert world.table_digest() == before
    assert len(world.named_files()) == DAYS
    assert world.table().place() == place
    assert not world.follow()


def test_compacting_again_does_nothing(world: TableWorld) -> None:
    compact(world.table(), fresh, execute=True)
    files = world.data_files()
    assert compact(world.table(), fresh, execute=True) == Compacted()
    assert world.data_files() == files


def test_a_dry_run_of_compacting_changes_nothing(world: TableWorld) -> None:
    files, snapshots = world.data_files(), len(world.table().iceberg.snapshots())
    assert compact(world.table(), fresh, execute=False) == Compacted(small=len(files), large=DAYS, commits=1)
    assert world.data_files() == files
    assert len(world.table().iceberg.snapshots()) == snapshots


def test_files_stay_below_the_size_that_is_asked_for(world: TableWorld) -> None:
    largest = 3 * max(each.file_size_in_bytes for each in world.table().data_files())
    table = world.table()
    for paths in bins(table, largest):
        assert sum(each.file_size_in_bytes for each in paths.files) <= largest
        assert len(paths.files) > 1


@pytest.mark.extended
def test_a_writer_that_dies_while_it_compacts_leaves_the_table_as_it_was(world: TableWorld) -> None:
    before, step = world.table_digest(), 0
    while True:
        table = world.table()
        taken = run_until(compact_bins(table, Attempt(fresh()), bins(table)), step)
        if len(taken) < step:
            break
        assert world.table_digest() == before
        if not bins(world.table()):
            break
        step += 1
    assert step == DAYS + 2  # the files, manifests, the commit


def test_rows_that_are_not_those_that_were_read_are_never_committed(world: TableWorld) -> None:
    """A store, a disk or a writer of Parquet may turn a byte: here a value of a source, once it was read."""
    before, table = world.named_files(), world.table()
    act = compact_bins(table, Attempt(fresh()), bins(table))
    next(act)
    small = Path(bins(table)[0].files[0].file_path.removeprefix("file://"))
    rows = pq.read_table(small)
    at = rows.schema.get_field_index("value")
    values = pa.array([b"turned", *rows.column("value").to_pylist()[1:]], rows.field(at).type)
    pq.write_table(rows.set_column(at, rows.field(at), values), small)
    with pytest.raises(CorruptData, match="does not have the rows that were read"):
        run(act)
    assert world.named_files() == before == world.data_files()


def test_rows_that_come_while_it_compacts_do_not_disturb_it(golden_log: Make, tmp_path: Path) -> None:
    world = TableWorld(golden_log("transactions"), tmp_path)
    run(world.round())
    run(world.round())
    table = world.table()
    act = compact_bins(table, Attempt(fresh()), bins(table))
    assert next(act).startswith("put ")
    assert world.follow()
    end = world.table().place()
    assert run(act) is True
    assert world.table().place() == end, "the place is that of the newest commit, not of what it read"
    assert world.table_digest() == world.log_digest()
    assert len(bins(world.table())) == DAYS


@pytest.mark.extended
def test_a_file_that_goes_while_it_is_compacted_stops_that_commit(world: TableWorld) -> None:
    table = world.table()
    act = compact_bins(table, Attempt(fresh()), bins(table))
    next(act)
    delete_below(world, 777)
    assert [each.step for each in world.follow()] == [Step.EXPIRED]
    assert run(act) is False
    assert world.table_digest() == world.log_digest()
    assert compact(world.table(), fresh, execute=True).commits == 1
    assert world.table_digest() == world.log_digest()


def test_snapshots_that_are_old_go_and_the_place_stays(world: TableWorld) -> None:
    place, before = world.table().place(), world.table_digest()
    table = world.table()
    old = old_snapshots(table, 2, LATER)
    assert len(old) == len(table.iceberg.snapshots()) - 2
    assert expire(table, old)
    assert len(world.table().iceberg.snapshots()) == 2
    assert world.table().place() == place
    assert world.table_digest() == before
    assert not old_snapshots(world.table(), 2, LATER)


def test_the_snapshot_that_says_the_place_stays_whatever_came_after_it(world: TableWorld) -> None:
    """Others appended rows, so the property does not fit."""
    [file, *_] = world.table().data_files()
    for _ in range(4):
        with world.table().iceberg.transaction() as transaction:
            with transaction.update_snapshot().fast_append() as snapshot:
                snapshot.append_data_file(file)
    place, table = world.table().place(), world.table()
    assert expire(table, old_snapshots(table, 1, LATER))
    assert world.table().place() == place
    assert [each.step for each in world.follow()] == [Step.RESTATED]


def test_young_snapshots_stay_however_many_there_are(world: TableWorld) -> None:
    assert not old_snapshots(world.table(), 1, TimestampMs(0))


@pytest.mark.extended
def test_only_files_of_a_dead_writer_are_swept(golden_log: Make, tmp_path: Path) -> None:
    world = TableWorld(golden_log("transactions"), tmp_path)
    run_until(world.round(), 3)
    left = world.data_files()
    assert left
    world.follow()
    before = world.table_digest()
    stray_files = strays(world.table(), LATER)
    assert {each.url.removeprefix("file://") for each in stray_files if each.url.endswith(".parquet")} == left
    sweep(world.table(), stray_files, lambda _: None)
    assert world.named_files() == world.data_files()
    assert world.table_digest() == before
    assert not strays(world.table(), LATER)
    assert run(world.round()).step is Step.NOTHING


@pytest.mark.extended
def test_files_of_an_older_snapshot_are_swept_once_it_expired(world: TableWorld) -> None:
    small = world.named_files()
    compact(world.table(), fresh, execute=True)
    assert not strays(world.table(), LATER)
    table = world.table()
    expire(table, old_snapshots(table, 1, LATER))
    stray_files = strays(table, LATER)
    assert small <= {each.url.removeprefix("file://") for each in stray_files}
    sweep(table, stray_files, lambda _: None)
    assert world.table_digest() == world.log_digest()


def test_young_files_are_never_swept(golden_log: Make, tmp_path: Path) -> None:
    """It may belong to an attempt that is at work."""
    world = TableWorld(golden_log("transactions"), tmp_path)
    run_until(world.round(), 3)
    assert not strays(world.table(), TimestampMs(SystemClock().now_ms() - 86_400_000))


@pytest.mark.parametrize("how", ["renamed", "dropped", pytest.param("another catalog", marks=pytest.mark.essential)])
def test_the_files_of_a_table_that_had_the_same_name_are_never_swept(world: TableWorld, how: str) -> None:
    before, facts = world.data_files(), world.table().facts
    if how == "another catalog":
        world.properties = {**world.properties, "uri": f"sqlite:///{world.folder}/another.db"}
    with world.catalog() as catalog:
        if how == "dropped":
            catalog.drop(NAME)
        elif how == "renamed":
            catalog._catalog.rename_table(("kafka", "t"), ("kafka", "old"))
        catalog.create(NAME, facts)
    world.follow()
    sweep(world.table(), strays(world.table(), LATER), lambda _: None)
    assert before <= world.data_files()


def test_a_table_of_an_earlier_version_loses_only_what_it_once_named(world: TableWorld) -> None:
    small, table = world.named_files(), world.table()
    shared = SetLocationUpdate(location=table.iceberg.location().rpartition("/")[0])
    table.iceberg.catalog.commit_table(table.iceberg, (), (shared,))
    table.refresh()
    neighbour = Path(table.url("date=2026-01-01/AAAAAAAAAAAAAAAAAAAAAA-0.parquet").removeprefix("file://"))
    neighbour.parent.mkdir(parents=True)
    neighbour.write_bytes(b"rows of another table")
    compact(world.table(), fresh, execute=True)
    table = world.table()
    expire(table, old_snapshots(table, 1, LATER))
    stray_files = {each.url.removeprefix("file://") for each in strays(table, LATER)}
    assert small <= stray_files
    assert str(neighbour) not in stray_files


def test_a_catalog_restored_from_a_backup_deletes_nothing_that_the_live_one_names(world: TableWorld) -> None:
    restored = world.folder / "restored.db"
    copy(world.folder / "catalog.db", restored)
    live = dict(world.properties)
    delete_below(world, 777)
    world.follow()
    files, before = world.named_files(), world.table_digest()
    world.properties = {**live, "uri": f"sqlite:///{restored}"}
    compact(world.table(), fresh, execute=True)
    expire(table := world.table(), old_snapshots(world.table(), 1, LATER))
    sweep(table, strays(table, LATER), lambda _: None)
    assert foreign_metadata(world.table()), "a person is told of the live catalog"
    world.properties = live
    assert files <= world.data_files()
    assert world.table_digest() == before


def test_a_live_catalog_deletes_nothing_that_a_restored_one_names(world: TableWorld) -> None:
    copy(world.folder / "catalog.db", restored := world.folder / "restored.db")
    live = dict(world.properties)
    world.properties = {**live, "uri": f"sqlite:///{restored}"}
    delete_below(world, 777)
    world.follow()
    before = world.table_digest()
    world.properties = live
    compact(world.table(), fresh, execute=True)
    expire(table := world.table(), old_snapshots(world.table(), 1, LATER))
    sweep(table, strays(table, LATER), lambda _: None)
    world.properties = {**live, "uri": f"sqlite:///{restored}"}
    assert world.table_digest() == before


def test_metadata_of_an_attempt_that_lost_its_race_keeps_no_file(world: TableWorld) -> None:
    """Another writer updated the catalog between this attempt's metadata file and its own update."""
    table, attempt = world.table(), Attempt(fresh())
    act = compact_bins(table, attempt, bins(table))
    while next(act) != "commit":
        pass
    copy(world.folder / "catalog.db", aside := world.folder / "aside.db")
    loser = LakeCatalog({**world.properties, "uri": f"sqlite:///{aside}"}).table(NAME)
    transaction = loser.prepared(Change(table.place(), tuple(attempt.files)), attempt.id)
    assert loser.commit(transaction, attempt.id)
    [unknown] = foreign_metadata(world.table())
    named = {unknown.url, *(each.file_path for each in attempt.files)}
    assert named.isdisjoint(each.url for each in strays(world.table(), LATER))
    for file in attempt.files:
        table.remove(file.file_path)
    assert unknown.url in {each.url for each in strays(world.table(), LATER)}


@pytest.mark.parametrize(
    "name", ["data/timestamp_day=2026-01-01/00000-0-spark.parquet", "data/notes.txt", "notes.json"]
)
def test_a_file_whose_name_tierstate_does_not_write_is_never_swept(world: TableWorld, name: str) -> None:
    file = Path(world.table().iceberg.location().removeprefix("file://")) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"rows of another engine")
    assert not strays(world.table(), LATER)
