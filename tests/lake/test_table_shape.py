"""The shape of a table: partitions and sort order by terms, few files, and compaction into a new shape."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.lake.exports import EVERY_COLUMN
from tests.lake.tables import TableWorld
from tests.lake.test_table_history import delete_below, unclean_election
from tests.lake.test_table_killed import killed_at
from tests.lake.typed_logs import folder_of
from tests.lake.typed_tables import Make
from tierstate.lake import table_layout
from tierstate.lake.columns import Columns
from tierstate.lake.parquet import ParquetFile
from tierstate.lake.table_check import check_table
from tierstate.lake.table_commit import evolve_table
from tierstate.lake.table_facts import iceberg_schema
from tierstate.lake.table_follow import Step, TableLimits
from tierstate.lake.table_shape import TableShape, shape_text
from tierstate.lake.table_upkeep import compact
from tierstate.runtime.operation import run
from tierstate.state.errors import InvalidRequest
from tierstate.values.form import Form

DDL = "id bigint, of string, at timestamp, on date, price decimal(9,2), deep struct<x int>"
FLAT = Columns(EVERY_COLUMN, value=Form("json", DDL), prefix="kafka_")
COUNT = 200
DAY_MS = 86_400_000


def world_of(golden_log: Make, path: Path, shape: TableShape, *, apart_ms: int = DAY_MS, **world: Any) -> TableWorld:
    """Return the world of a flat table, whose records are a day apart and have ids in no order."""
    random = Random(7)
    records: list[tuple[bytes, bytes | None]] = [
        (b"k%d" % (at % 5), json.dumps(value_of(at, random)).encode()) for at in range(COUNT)
    ]
    records[50] = (b"k", None)
    records[51] = (b"k", b"?")
    golden = golden_log(path=folder_of(path / "topic", records, a_batch=5, a_segment=40, apart_ms=apart_ms))
    limits = TableLimits(file_bytes=10**6, commit_bytes=10**7)
    return TableWorld(golden, path / "table", columns=FLAT, shape=shape, **{"limits": limits, **world})


def value_of(at: int, random: Random) -> dict[str, Any]:
    day = (datetime(1969, 6, 1, tzinfo=UTC) + timedelta(days=at * 3, seconds=at)).isoformat()
    return {
        "id": random.randrange(1000),
        "of": random.choice(["ä", "bob", None]),
        "at": day,
        "on": day[:10],
        "price": round(at / 8, 2),
        "deep": {"x": at % 3},
    }


def require_log(world: TableWorld) -> None:
    assert not check_table(world.table(), world.log(), window_bytes=3_000).findings


def reshape(world: TableWorld, shape: TableShape) -> None:
    assert evolve_table(world.table(), {}, world.attempt_id, execute=True, shape=shape)
    assert not evolve_table(world.table(), {}, world.attempt_id, execute=True, shape=shape), "it is done"


def test_without_terms_a_year_is_a_file_and_times_prune_by_its_bounds(golden_log: Make, tmp_path: Path) -> None:
    world = world_of(golden_log, tmp_path, TableShape())
    world.follow()
    (file,) = world.table().data_files()
    assert file.record_count == COUNT
    assert not world.table().data_files("kafka_timestamp < '2020-01-01T00:00:00+00:00'")
    require_log(world)


TERMS = [
    ("day(timestamp)",),
    ("month(at)", "bucket(4, id)"),
    ("hours(at)",),
    ("year(on)", "of"),
    ("truncate(1, of)", "identity(price)"),
    ("bucket(8, on)", "deep.x"),
    ("on", "bucket(3, price)"),
    ("bucket(3, kafka_key)",),
]


@pytest.mark.extended
@pytest.mark.parametrize("terms", TERMS, ids=" ".join)
def test_each_file_has_the_rows_of_one_partition_as_iceberg_computes_it(
    golden_log: Make, tmp_path: Path, terms: tuple[str, ...]
) -> None:
    """Iceberg's own transforms, value by value, name the same partition."""
    world = world_of(golden_log, tmp_path, TableShape(terms))
    world.follow()
    require_log(world)
    table = world.table()
    schema, spec = table.iceberg.schema(), table.iceberg.spec()
    files = table.data_files()
    assert len(files) > 1
    assert len({str(file.partition) for file in files}) == len(files)
    for file in files:
        rows = pq.read_table(file.file_path.removeprefix("file://"))
        for at, field in enumerate(spec.fields):
            source = schema.find_field(field.source_id).field_type
            column = table_layout.column_by_id(rows, field.source_id)
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.int64())
            elif pa.types.is_date(column.type):
                column = column.cast(pa.int32())
            transform = field.transform.transform(source)
            assert {None if value is None else transform(value) for value in column.to_pylist()} == {file.partition[at]}


@pytest.mark.essential
def test_a_filter_on_a_bucketed_field_plans_the_files_of_its_bucket(golden_log: Make, tmp_path: Path) -> None:
    world = world_of(golden_log, tmp_path, TableShape(("bucket(16, id)",)))
    world.follow()
    some = world.rows().column("id")[7].as_py()
    tasks = list(world.table().iceberg.scan(row_filter=f"id == {some}").plan_files())
    assert len(tasks) == 1
    assert len(world.named_files()) > 10
    files = [task.file.file_path for task in tasks]
    query = "SELECT count(*) > 0 FROM read_parquet($files) WHERE id = $id"
    assert duckdb.execute(query, {"files": files, "id": some}).fetchall() == [(True,)]


def test_late_records_of_hundreds_of_days_open_one_file_at_a_time(
    golden_log: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, most = 0, Counter[str]()

    class Counted(ParquetFile):
        def __init__(self, *arguments: Any) -> None:
            nonlocal opened
            opened += 1
            most["open"] = max(most["open"], opened)
            super().__init__(*arguments)

        def close(self) -> None:
            nonlocal opened
            opened -= 1
            super().close()

    monkeypatch.setattr("tierstate.lake.table_files.ParquetFile", Counted)
    world = world_of(golden_log, tmp_path, TableShape(("day(timestamp)",)))
    (done,) = world.follow()
    assert (done.files, most["open"]) == (COUNT, 1)
    require_log(world)


@pytest.mark.parametrize("columns", [("id",), ("of", "deep.x"), ("price",)], ids=" ".join)
def test_the_rows_of_each_file_are_sorted(golden_log: Make, tmp_path: Path, columns: tuple[str, ...]) -> None:
    world = world_of(golden_log, tmp_path, TableShape(("bucket(2, id)",), columns))
    world.follow()
    table = world.table()
    schema = table.iceberg.schema()
    assert not compact(table, world.attempt_id, execute=True).commits
    for file in table.data_files():
        assert file.sort_order_id == table.iceberg.metadata.default_sort_order_id
        rows = pq.read_table(file.file_path.removeprefix("file://"))
        ids = [schema.find_field(name).field_id for name in (*columns, "kafka_offset")]
        values = list(zip(*(table_layout.column_by_id(rows, each).to_pylist() for each in ids), strict=True))
        assert values == sorted(values, key=lambda row: [(each is not None, each) for each in row])
    require_log(world)


def test_a_sorted_file_is_bounded_and_compaction_joins_sorted_files(
    golden_log: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tierstate.lake.table_files.SORTED_BYTES", 4_000)
    world = world_of(golden_log, tmp_path, TableShape(sort_by=("id",)))
    monkeypatch.setattr("tierstate.lake.table_files.ROW_GROUP_BYTES", 2_000)
    (done,) = world.follow()
    assert done.files > 3
    before = world.rows()
    assert compact(world.table(), world.attempt_id, execute=True).large == 1
    (file,) = world.table().data_files()
    ids = pq.read_table(file.file_path.removeprefix("file://")).column("id").to_pylist()
    assert ids == sorted(ids, key=lambda each: (each is not None, each))
    assert world.rows().equals(before)
    require_log(world)


SHAPES = (TableShape(("none",)), TableShape(("month(timestamp)",)), TableShape(("bucket(3, id)", "year(at)"), ("id",)))


@pytest.mark.essential
def test_a_table_that_changes_its_shape_goes_on_and_compaction_divides_older_files(
    golden_log: Make, tmp_path: Path
) -> None:
    world = world_of(golden_log, tmp_path, TableShape(("day(timestamp)",)))
    local = world.golden.local
    for at, shape in enumerate(SHAPES):
        local.high_watermark = local.last_stable_offset = 50 * (at + 1)
        world.follow()
        reshape(world, shape)
        require_log(world)
    local.high_watermark = local.last_stable_offset = COUNT
    world.follow()
    delete_below(world, 13)
    unclean_election(world, 9, 190)
    assert {Step.EXPIRED, Step.LOST_BRANCH} <= {each.step for each in world.follow()}
    before = world.rows()
    table = world.table()
    assert compact(table, world.attempt_id, execute=True).small > 40
    assert {file.spec_id for file in table.data_files()} == {table.iceberg.spec().spec_id}
    assert world.rows().equals(before)
    assert not compact(table, world.attempt_id, execute=True).commits
    require_log(world)
    assert shape_text(table.iceberg.spec(), table.iceberg.sort_order(), table.iceberg.schema()) == {
        "partition_by": "bucket(3, id), year(at)",
        "sort_by": "id",
    }


@pytest.mark.extended
def test_rows_that_were_divided_before_the_shape_changed_are_not_committed_after_it(
    golden_log: Make, tmp_path: Path
) -> None:
    world = world_of(golden_log, tmp_path, TableShape(("bucket(3, id)",)))
    operation = world.round()
    while not next(operation).startswith("write manifests"):
        pass
    reshape(world, TableShape(("day(timestamp)",)))
    assert run(operation).step is Step.RACED
    world.follow()
    assert world.named_files() == world.data_files()
    require_log(world)


@pytest.mark.extended
def test_a_follower_that_is_killed_while_it_divides_rows_leaves_the_table_its_log(
    golden_log: Make, tmp_path: Path
) -> None:
    for step in (1, 3, 5, 6, 7):
        world = world_of(golden_log, tmp_path / str(step), TableShape(("bucket(4, id)",)))
        assert killed_at(world, step)
        world.follow()
        require_log(world)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (TableShape(("day(nothing)",)), "no such column.*column=nothing"),
        (TableShape(("day(id)",)), r"cannot be divided so.*day\(id\)"),
        (TableShape(("bucket(id)",)), r"other terms.*bucket\(id\)"),
        (TableShape(("bucket(0, id)",)), "other terms"),
        (TableShape(("week(at)",)), "other terms"),
        (TableShape(("deep",)), "no such column.*column=deep"),
        (TableShape(("kafka_headers.element.key",)), "no such column"),
        (TableShape(("bucket(2, id)", "bucket(4, id)")), "one name.*id_bucket"),
        (TableShape(sort_by=("deep",)), "no such column"),
    ],
)
def test_a_shape_that_a_table_cannot_have_is_refused_by_its_term(shape: TableShape, reason: str) -> None:
    schema = iceberg_schema(FLAT.schema())
    with pytest.raises(InvalidRequest, match=reason):
        _ = shape.spec(schema, FLAT), shape.order(schema, FLAT)
