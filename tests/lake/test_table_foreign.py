"""Other tools work on a table while it is followed: it goes on, and `check` names what they did.

One Spark with Iceberg's runtime works on a table for each operation. A keeper follows all of them all the time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog

from tests.fetch.conftest import golden_logs
from tests.fetch.two_tiers import Golden
from tests.lake.exports import digest_of
from tests.lake.tables import NAME, TableWorld
from tests.lake.test_table_keeper import copy_another
from tests.servers.rest_catalog import rest_catalog
from tests.servers.spark_iceberg import needs_spark_iceberg, rows_by_spark
from tests.twins.manual_clock import ManualClock
from tierstate.lake.table import LakeTable
from tierstate.lake.table_catalog import LakeCatalog
from tierstate.lake.table_check import CheckedTable, check_table
from tierstate.lake.table_follow import Step, TableLimits
from tierstate.lake.table_keeper import FollowPace, Keeper
from tierstate.lake.table_snapshots import Retention
from tierstate.runtime.operation import run

Make = Callable[..., Golden]
pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]
RUNS = threading.Event()
FAR = 1_000_000
"""What Spark adds to the offsets of the rows that it appends."""
COLUMNS = "key, value, topic, partition, offset + 1000000, timestamp, timestampType, headers"
OLDER = "TIMESTAMP '2020-01-01 00:00:00'"
CALLS = {
    "rewrite_data_files": "CALL lake.system.rewrite_data_files(table => '{}', options => map('rewrite-all', 'true'))",
    "rewrite_manifests": "CALL lake.system.rewrite_manifests(table => '{}')",
    "expire_snapshots": "CALL lake.system.expire_snapshots(table => '{}', older_than => now(), retain_last => 1)",
    "remove_orphan_files": "CALL lake.system.remove_orphan_files(table => '{}', older_than => " + OLDER + ")",
    "append": "INSERT INTO lake.{} SELECT " + COLUMNS + " FROM lake.{} LIMIT 3",
    "rename": "ALTER TABLE lake.{} RENAME TO kafka.renamed",
}
FINAL = {name: f"kafka.{name}" for name in (*CALLS, "pyiceberg_expire")} | {"rename": "kafka.renamed"}
"""The names of the tables at the end, by what happens to each."""


@dataclass
class Maintained:
    """The table and its files after all steps. ``orphans``: files that no snapshot named, laid out before."""

    world: TableWorld
    keeper: Keeper
    orphans: dict[str, Path]

    def table(self, what: str) -> LakeTable:
        return LakeCatalog(self.world.properties).table(FINAL[what])

    def checked(self, what: str) -> CheckedTable:
        return check_table(self.table(what), self.world.log())


def laid_out(table: LakeTable) -> Path:
    """Return a file that nothing names. All files of the table are older than any attempt."""
    folder = Path(table.iceberg.location().removeprefix("file://"))
    orphan = folder / "data" / "left-behind.parquet"
    orphan.write_bytes(b"of a writer that died")
    for each in folder.rglob("*"):
        os.utime(each, (1, 1))
    return orphan


@pytest.fixture(scope="module")
def maintained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Maintained]:
    needs_spark_iceberg()
    folder = tmp_path_factory.mktemp("maintained")
    with golden_logs() as golden_log, rest_catalog(folder / "rest", f"file://{folder}/lake") as server:
        properties = {"type": "rest", "uri": server.url}
        world = TableWorld(golden_log(copies=2), folder / "world", local=False, properties=properties)
        with world.catalog() as catalog:
            facts = catalog.table(NAME).facts
            catalog.drop(NAME)
            tables = [catalog.create(f"kafka.{name}", facts) for name in FINAL]
        pace = FollowPace(ManualClock(), 0.0, Retention(200, 86_400_000), world.attempt_id)
        limits = TableLimits(file_bytes=2_000, commit_bytes=4_000)
        opened = LakeCatalog(properties)
        keeper = Keeper(opened, (), lambda facts: world.log(), limits, pace, structlog.get_logger())
        for _ in range(4):
            assert keeper.turn(RUNS)
        orphans = {table.name: laid_out(table) for table in tables}
        (into := folder / "into").mkdir()
        calls = [call.replace("{}", f"kafka.{name}") for name, call in CALLS.items()]
        with ThreadPoolExecutor(1) as pool:
            spark, turns = pool.submit(rows_by_spark, server.url, calls, into), 0
            while not wait([spark], 0.2).done:  # a follower at full speed would leave Spark no processor
                turns += 1
                if not keeper.turn(RUNS):
                    _more(world)
                if turns % 5 == 0:
                    _expired_by_pyiceberg(properties)
            spark.result()
        _more(world)
        while keeper.turn(RUNS):
            pass
        yield Maintained(world, keeper, orphans)
        opened.close()


def _more(world: TableWorld) -> None:
    if len(world.golden.segments) < len(world.golden.folder.bases) - 1:
        copy_another(world)


def _expired_by_pyiceberg(properties: dict[str, str]) -> None:
    with closing(LakeCatalog(properties)) as catalog:
        iceberg = catalog.table("kafka.pyiceberg_expire").iceberg
        later = datetime.now(UTC) + timedelta(hours=1)
        iceberg.maintenance.expire_snapshots().older_than(later.replace(tzinfo=None)).commit()


@pytest.mark.parametrize("what", FINAL)
def test_a_table_goes_on_exactly_once(maintained: Maintained, what: str) -> None:
    assert maintained.keeper.stopped() == []
    rows = maintained.table(what).iceberg.scan(row_filter=f"offset < {FAR}").to_arrow().sort_by("offset")
    assert digest_of(rows) == maintained.world.log_digest()
    kept = maintained.keeper.tables[FINAL[what]]
    assert (kept.lag, kept.stopped) == (0, None)


@pytest.mark.parametrize(
    ("what", "operation"),
    [("rewrite_data_files", "replace"), ("rewrite_manifests", "replace"), ("append", "append")],
)
def test_the_check_names_what_another_engine_committed(maintained: Maintained, what: str, operation: str) -> None:
    checked = maintained.checked(what)
    [commit] = checked.foreign
    assert (commit.operation, commit.engine.split()[0]) == (operation, "spark")
    problems = [each.problem for each in checked.findings]
    assert problems == (["3 rows are outside of what the table's place says"] if what == "append" else [])


@pytest.mark.parametrize("what", ["expire_snapshots", "pyiceberg_expire", "remove_orphan_files", "rename"])
def test_the_check_of_what_left_the_rows_alone_names_nothing(maintained: Maintained, what: str) -> None:
    checked = maintained.checked(what)
    assert (checked.findings, checked.foreign) == ([], [])


def test_only_what_no_snapshot_named_was_removed_as_an_orphan(maintained: Maintained) -> None:
    assert not maintained.orphans["kafka.remove_orphan_files"].exists()
    assert maintained.orphans["kafka.append"].exists()


def test_the_expiry_of_all_but_a_foreign_snapshot_leaves_the_place(golden_log: Make, tmp_path: Path) -> None:
    """The table is not followed while all our snapshots expire: the foreign one has the place since the last round."""
    world = TableWorld(golden_log(), tmp_path)
    world.follow()
    place = world.table().place()
    table = world.table()
    with table.iceberg.transaction() as transaction, transaction.update_snapshot().merge_append() as snapshot:
        for each in world.table().data_files()[:1]:
            snapshot.append_data_file(each)
    assert run(world.round()).step is Step.RESTATED
    assert run(world.round()).step is Step.NOTHING
    later = datetime.now() + timedelta(hours=1)
    world.table().iceberg.maintenance.expire_snapshots().older_than(later).commit()
    assert len(world.table().iceberg.snapshots()) == 1
    assert world.table().place() == place
