"""Spark's own reader of Iceberg reads our tables: the same rows as pyiceberg's, whatever happened to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysTrue

from tests.fetch.two_tiers import Golden
from tests.lake.tables import NAME, TableWorld
from tests.lake.test_table_history import delete_below, unclean_election
from tests.lake.test_table_upsert import BY_KEY, FLAT, fold, keyed_topic, world_of
from tests.lake.typed_tables import COUNT, columns_of, json_world
from tests.lake.typed_topics import DDL
from tests.servers.rest_catalog import rest_catalog, sqlite_driver
from tests.servers.spark_iceberg import needs_spark_iceberg, rows_by_spark, rows_of_catalog
from tests.twins.counting_ids import CountingIds
from tierstate.lake.engines import engines
from tierstate.lake.table_check import check_table
from tierstate.lake.table_follow import Step
from tierstate.lake.table_shape import TableShape
from tierstate.lake.table_upkeep import compact
from tierstate.state.ids import FactId

Make = Callable[..., Golden]
pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]
IDS = CountingIds(23)
TABLE = f"lake.{NAME}"
BY_OFFSET = "ORDER BY `offset`"


@pytest.fixture
def uri(tmp_path: Path) -> Iterator[str]:
    needs_spark_iceberg()
    with rest_catalog(tmp_path / "rest", f"file://{tmp_path}/lake") as server:
        yield server.url


def shown(rows: pa.Table) -> list[dict[str, Any]]:
    """Return the rows; a record without headers has an empty list of them, as pyiceberg shows it."""
    return [{**row, "headers": row["headers"] or None} for row in rows.to_pylist()]


def spark_shows_the_same(world: TableWorld, uri: str, into: Path) -> None:
    into.mkdir()
    day = world.rows().column("timestamp")[-1].as_py().date()
    filters = {
        "": "",
        "WHERE `offset` >= 1000 AND `offset` < 1300": "offset >= 1000 and offset < 1300",
        f"WHERE `timestamp` >= DATE'{day}'": f"timestamp >= '{day}T00:00:00+00:00'",
    }
    queries = [f"SELECT * FROM {TABLE} {where} {BY_OFFSET}" for where in filters]
    for rows_read, (sql, condition) in zip(rows_by_spark(uri, queries, into), filters.items(), strict=True):
        scan = world.table().iceberg.scan(row_filter=condition or AlwaysTrue())
        expected = shown(scan.to_arrow().sort_by("offset"))
        assert shown(rows_read) == expected, sql


def test_bytes_after_deletes_a_lost_branch_and_compaction(golden_log: Make, tmp_path: Path, uri: str) -> None:
    world = TableWorld(golden_log("transactions"), tmp_path / "world", properties={"type": "rest", "uri": uri})
    world.follow()
    spark_shows_the_same(world, uri, tmp_path / "appended")
    delete_below(world, 777)
    unclean_election(world, 99, 1500)
    world.follow()
    spark_shows_the_same(world, uri, tmp_path / "taken-out")
    assert compact(world.table(), lambda: FactId.of(IDS.uuid()), execute=True).commits
    spark_shows_the_same(world, uri, tmp_path / "compacted")
    assert world.table_digest() == world.log_digest(end=1500)


def test_typed_columns_that_evolved(golden_log: Make, tmp_path: Path, uri: str) -> None:
    world = json_world(golden_log, tmp_path / "world", properties={"type": "rest", "uri": uri})
    world.follow_to(100)
    world.evolve(columns_of(DDL[1]))
    world.follow_to(170)
    world.evolve(columns_of(DDL[2]))
    world.follow_to(COUNT)
    assert world.require_same()
    spark_shows_the_same(world, uri, tmp_path / "evolved")
    compact(world.table(), lambda: FactId.of(IDS.uuid()), execute=True)
    spark_shows_the_same(world, uri, tmp_path / "compacted")


def test_a_table_goes_on_after_sparks_own_maintenance(golden_log: Make, tmp_path: Path, uri: str) -> None:
    """Spark rewrites every data file and keeps one snapshot, which names no place."""
    world = TableWorld(golden_log("transactions"), tmp_path / "world", properties={"type": "rest", "uri": uri})
    world.follow()
    place, before, ours = world.table().place(), world.table_digest(), world.named_files()
    maintain = [
        f"CALL lake.system.rewrite_data_files(table => '{NAME}', options => map('rewrite-all', 'true'))",
        f"CALL lake.system.rewrite_manifests(table => '{NAME}')",
        f"CALL lake.system.expire_snapshots(table => '{NAME}', older_than => now(), retain_last => 1)",
    ]
    into = tmp_path / "maintained"
    into.mkdir()
    rows_by_spark(uri, maintain, into)
    assert ours.isdisjoint(world.named_files())
    assert len(world.table().iceberg.snapshots()) == 1
    assert world.table().place() == place
    assert world.table_digest() == before
    assert [each.step for each in world.follow()] == [Step.RESTATED]
    delete_below(world, 777)
    unclean_election(world, 99, 1500)
    world.follow()
    assert world.table_digest() == world.log_digest(end=1500)
    assert not check_table(world.table(), world.log()).findings


def test_spark_opens_the_embedded_catalog_by_the_lines_that_table_show_prints(golden_log: Make, tmp_path: Path) -> None:
    """Spark uses the driver of SQLite that Iceberg's own REST server carries."""
    needs_spark_iceberg()
    world = TableWorld(golden_log("transactions"), tmp_path / "world")
    world.follow()
    lines = engines(world.properties, NAME)["spark"].splitlines()
    into = tmp_path / "into"
    into.mkdir()
    query = f"SELECT * FROM tierstate.{NAME} {BY_OFFSET}"
    (rows_read,) = rows_of_catalog(dict(line.split("=", 1) for line in lines), [query], into, [sqlite_driver(tmp_path)])
    assert shown(rows_read) == shown(world.rows().sort_by("offset"))


def test_a_flat_divided_table_that_upserts_is_pruned_and_shown_by_spark(
    golden_log: Make, tmp_path: Path, uri: str
) -> None:
    records = keyed_topic()
    world = world_of(
        golden_log,
        tmp_path / "world",
        records,
        FLAT,
        upsert=BY_KEY,
        shape=TableShape(("bucket(4, id)", "day(timestamp)"), ("n",)),
        properties={"type": "rest", "uri": uri},
    )
    world.follow()
    expected = world.rows().to_pylist()
    assert [row["kafka_offset"] for row in expected] == fold(records, COUNT)
    some = next(row["id"] for row in expected if row["id"] is not None)
    queries = [
        f"SELECT * FROM {TABLE} ORDER BY kafka_offset",
        f"SELECT kafka_offset FROM {TABLE} WHERE id = {some} ORDER BY kafka_offset",
        f"SELECT partition.id_bucket, count(*) FROM {TABLE}.files GROUP BY ALL",
    ]
    into = tmp_path / "into"
    into.mkdir()
    whole, of_one, buckets = rows_by_spark(uri, queries, into)
    assert [{**row, "kafka_headers": row["kafka_headers"] or []} for row in whole.to_pylist()] == expected
    assert of_one.column(0).to_pylist() == [row["kafka_offset"] for row in expected if row["id"] == some]
    assert buckets.num_rows > 1
