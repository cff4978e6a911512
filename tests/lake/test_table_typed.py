"""Typed tables: every record is a row of its columns, values that do not parse keep their bytes, and schemas evolve."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from tests.lake.exports import EVERY_COLUMN
from tests.lake.tables import TableWorld
from tests.lake.test_table_check import change
from tests.lake.test_table_history import delete_below, unclean_election
from tests.lake.typed_logs import avro_long, folder_of
from tests.lake.typed_tables import COUNT, Make, TypedWorld, columns_of, json_world
from tests.lake.typed_topics import DDL, Meant, json_topic
from tierstate.lake.columns import Columns
from tierstate.lake.table_check import check_table
from tierstate.lake.table_files import rows_between
from tierstate.lake.table_follow import Step
from tierstate.lake.table_place import TablePlace
from tierstate.lake.table_upkeep import compact
from tierstate.values.form import Form

pytestmark = pytest.mark.extended


@pytest.mark.essential
def test_a_typed_table_is_its_log_and_what_does_not_parse_keeps_its_bytes(golden_log: Make, tmp_path: Path) -> None:
    world = json_world(golden_log, tmp_path, DDL[4])
    rounds = world.follow()
    corrupt = world.require_same()
    assert sum(each.corrupt for each in rounds) == corrupt > 10


def test_headers_as_a_map_are_the_logs(golden_log: Make, tmp_path: Path) -> None:
    world = TypedWorld(golden_log, tmp_path, json_topic(COUNT, Random(3)), columns_of(DDL[4], "map"))
    world.follow()
    world.require_same()
    shown = {row["offset"]: dict(row["headers"]) for row in world.rows().to_pylist() if row["headers"]}
    assert shown == {at: {"trace": [b"%d" % at, None], "hop": [b"1"]} for at in range(0, COUNT, 3)}


def test_after_it_evolved_older_rows_have_null_and_wider_numbers(golden_log: Make, tmp_path: Path) -> None:
    world = json_world(golden_log, tmp_path)
    world.follow_to(100)
    world.evolve(columns_of(DDL[3]))
    world.follow_to(170)
    world.evolve(columns_of(DDL[4]))
    world.follow_to(COUNT)
    world.require_same()
    assert [(each.version, each.start) for each in world.table().place().partitions[0].versions] == [
        (0, 0),
        (1, 100),
        (2, 170),
    ]
    values = [row["value"] for row in world.rows().to_pylist() if row["value"]]
    assert {tuple(each) for each in values} == {("id", "name", "few", "price", "tags")}
    assert values[0]["price"] is None
    assert any(each["price"] is not None for each in values)
    assert values[-1]["id"] > 2**32


@pytest.mark.extended
def test_compacting_and_taking_out_leave_typed_rows_as_they_are(golden_log: Make, tmp_path: Path) -> None:
    world = json_world(golden_log, tmp_path)
    world.follow_to(100)
    world.evolve(columns_of(DDL[4]))
    world.follow_to(COUNT)
    before = world.rows()
    assert compact(world.table(), world.attempt_id, execute=True).commits
    assert world.rows().to_pylist() == before.to_pylist()
    delete_below(world, 33)
    assert [each.step for each in world.follow()] == [Step.EXPIRED]
    assert world.rows().to_pylist() == before.slice(33).to_pylist()
    world.require_same()


@pytest.mark.extended
def test_rows_appended_after_a_lost_branch_have_the_newer_columns(golden_log: Make, tmp_path: Path) -> None:
    world = json_world(golden_log, tmp_path)
    world.follow_to(200)
    world.evolve(columns_of(DDL[4]))
    unclean_election(world, 9, 150)
    assert [each.step for each in world.follow()] == [Step.LOST_BRANCH]
    world.follow_to(COUNT)
    [reach] = world.table().place().partitions.values()
    assert [(each.version, each.start) for each in reach.versions] == [(0, 0), (1, 150)]
    world.require_same()


@pytest.mark.extended
def test_rows_of_a_lost_branch_do_not_change_the_columns_of_older_ones(golden_log: Make, tmp_path: Path) -> None:
    world = json_world(golden_log, tmp_path)
    world.follow_to(100)
    world.evolve(columns_of(DDL[3]))
    world.follow_to(200)
    unclean_election(world, 9, 90)
    world.follow()
    world.follow_to(COUNT)
    assert world.table().place().partitions[0].versions == ((0, 0), (1, 90))
    world.require_same()


def test_rows_without_a_known_writer_are_found(golden_log: Make, tmp_path: Path) -> None:
    world = json_world(golden_log, tmp_path)
    world.follow()
    table, place = world.table(), world.table().place()
    table.place = lambda: TablePlace({0: replace(place.partitions[0], versions=())})  # type: ignore[method-assign]
    [finding] = check_table(table, world.log()).findings
    assert finding.problem == "the table's place does not say which columns wrote its rows"


def test_a_value_that_is_not_the_logs_is_found_in_a_typed_column(golden_log: Make, tmp_path: Path) -> None:
    world = json_world(golden_log, tmp_path, DDL[3])
    world.follow()

    def forged(rows: pa.Table) -> pa.Table:
        at = rows.schema.get_field_index("value")
        others = pa.array([{"id": 7, "name": "forged", "price": 0.0}] * rows.num_rows, rows.field(at).type)
        return rows.set_column(at, rows.field(at), others)

    change(world, forged, 60, 62)
    [finding] = check_table(world.table(), world.log()).findings
    assert finding.problem == "the column value is not the log's"
    assert finding.offset == 60


def test_not_a_number_is_the_same_as_not_a_number(golden_log: Make, tmp_path: Path) -> None:
    """JSON has no such number, and Avro has."""
    nan = float("nan")
    schema = {"type": "record", "name": "Priced", "fields": [{"name": "price", "type": "double"}]}
    topic = [Meant(struct.pack("<d", nan), {"price": nan})] * 10
    world = TypedWorld(golden_log, tmp_path, topic, Columns(EVERY_COLUMN, value=Form("avro", json.dumps(schema))))
    world.follow()
    assert not check_table(world.table(), world.log()).findings
    assert compact(world.table(), world.attempt_id, execute=True).commits
    shown = world.rows().column("value").combine_chunks().field("price").to_pylist()
    assert [repr(each) for each in shown] == ["nan"] * 10


def avro_of(kind: str, logical: str) -> Form:
    return Form("avro", json.dumps({"type": kind, "logicalType": logical}))


@pytest.mark.parametrize(
    ("form", "key"),
    [
        (Form("string"), "aaaaaaaaaaaaaaa\ud7ffb".encode()),
        (avro_of("int", "date"), avro_long(2_932_897)),
        (avro_of("long", "timestamp-millis"), avro_long(253_402_300_800_000)),
        (avro_of("long", "timestamp-micros"), avro_long(2**63 - 1)),
    ],
    ids=["a text before U+D800", "a date of the year 10000", "milliseconds of it", "the last microsecond"],
)
def test_a_key_without_bounds_is_a_row_and_the_days_and_offsets_of_its_file_are_known(
    golden_log: Make, tmp_path: Path, form: Form, key: bytes
) -> None:
    golden = golden_log(path=folder_of(tmp_path / "topic", [(key, b"1")] * 10, a_batch=5, a_segment=40, apart_ms=1))
    world = TableWorld(golden, tmp_path / "table", columns=Columns(EVERY_COLUMN, key=form))
    rounds = world.follow()
    assert sum(each.rows for each in rounds) == 10
    assert not any(each.corrupt for each in rounds)
    assert not check_table(world.table(), world.log()).findings
    assert world.table().count("offset >= 7") == 3
    assert len(world.table().data_files("offset >= 10")) == 0


EVERY_TYPE = (
    "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h decimal(12,2), i string, k date, "
    "l timestamp, m timestamp_ntz, n array<struct<x: int, y: array<string>>>, o map<string, struct<z: double>>, "
    "p binary"
)
ONE = (
    b'{"a": true, "b": -1, "c": 300, "d": 70000, "e": 5000000000, "f": 0.5, "g": 0.1, "h": 12.50, "i": "\xc3\xa4",'
    b' "k": "2026-11-25", "l": "2026-11-25T01:02:03.000004Z", "p": "AP8=",'
    b' "m": "2026-11-25T01:02:03.000004", "n": [{"x": 1, "y": ["p", null]}, null], "o": {"q": {"z": 1.5}, "r": null}}'
)


def test_a_column_of_every_type_is_read_by_other_engines(
    golden_log: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    topic = [Meant(ONE, {}), Meant(b"{}", {}), Meant(None), Meant(b"?", poison=True)] * 5
    world = TypedWorld(golden_log, tmp_path, topic, columns_of(EVERY_TYPE))
    world.follow()
    assert not check_table(world.table(), world.log()).findings
    table = world.table()
    shown = rows_between(table, 0, 0, 3).column("value").to_pylist()
    assert shown[0] == {
        "a": True,
        "b": -1,
        "c": 300,
        "d": 70000,
        "e": 5_000_000_000,
        "f": 0.5,
        "g": 0.1,
        "h": Decimal("12.50"),
        "i": "ä",
        "k": date(2026, 11, 25),
        "l": datetime(2026, 11, 25, 1, 2, 3, 4, tzinfo=UTC),
        "m": datetime(2026, 11, 25, 1, 2, 3, 4),
        "n": [{"x": 1, "y": ["p", None]}, None],
        "o": [("q", {"z": 1.5}), ("r", None)],
        "p": b"\0\xff",
    }
    assert shown[1:] == [dict.fromkeys(shown[0]), None]
    frame = pl.scan_iceberg(table.iceberg).sort("offset").collect()
    assert frame["value"].struct.field("h").to_list()[:3] == [Decimal("12.50"), None, None]
    files = [each.file_path for each in table.data_files()]
    answer = duckdb.connect().execute(
        'SELECT count(*), sum(value.h), max(value.n[1].y[1]), count("_corrupt"), sum(octet_length("_corrupt".value))'
        f" FROM read_parquet({files})"
    )
    assert answer.fetchall() == [(20, Decimal("62.50"), "p", 5, 5)]
