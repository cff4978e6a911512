"""`tierstate export` of typed values, on a real broker: columns of a schema, and broken records counted."""

from __future__ import annotations

import signal
from pathlib import Path

import duckdb
import pytest

from tests.lake.typed_logs import AVRO, DDL, POISON, an_order
from tests.scenarios.exported import ORDERS, TYPED, Lake, objects
from tests.scenarios.house import eventually
from tests.servers.schema_registry import registry

pytestmark = pytest.mark.kafka


def test_json_is_exported_as_columns_of_its_schema_and_broken_records_are_counted(
    lake: Lake, own: tuple[Path, str], tmp_path: Path
) -> None:
    folder, into = own
    schema = tmp_path / "orders.ddl"
    schema.write_text(DDL)
    flags = ["--value-format", "json", "--value-schema", str(schema), "--key-format", "string", "--headers", "map"]
    done = lake.house.run("export", lake.orders, "--into", into, *flags, "--processes", "2")
    broken = sum(value in POISON for value in ORDERS)
    assert f"{broken} of them do not parse" in done.stderr
    rows = lake.rows(folder, lake.orders).sort_by("offset").to_pylist()
    assert len(rows) == TYPED
    for number, (value, row) in enumerate(zip(ORDERS, rows, strict=True)):
        assert row["key"] == f"k{number % 7}"
        assert row["headers"] == [("at", [b"%d" % number])]
        assert row["_corrupt"] == ({"key": None, "value": value} if value in POISON else None)
        good = value is not None and value not in POISON
        assert (row["value"] and row["value"]["name"], row["value"] is not None) == (
            an_order(number)["name"] if good else None,
            good,
        )
    assert lake.export(into, "--check", topic=lake.orders)["findings"] == []
    every = f"{folder}/{lake.orders}/*/*.parquet"
    [(total,)] = duckdb.execute(f"SELECT sum(value.id) FROM read_parquet('{every}')").fetchall()
    assert total == sum(at for at, value in enumerate(ORDERS) if value is not None and value not in POISON)


def test_a_typed_export_that_is_killed_goes_on_to_the_same_files(lake: Lake, own: tuple[Path, str]) -> None:
    folder, into = own
    flags = ["--value-format", "json", "--value-schema", DDL, "--file-bytes", "20KiB", "--processes", "1"]
    running = lake.house.start("export", lake.orders, "--into", into, *flags)
    eventually(lambda: len(list(folder.rglob("task-*.json"))) >= 2)
    running.stop(signal.SIGKILL)
    assert lake.export(into, *flags, topic=lake.orders)["tasks_found"] >= 2
    clean, other = lake.place("clean-typed")
    lake.export(other, *flags, topic=lake.orders)
    assert objects(folder) == objects(clean)


def test_avro_without_a_schema_is_read_by_the_subjects_latest_which_the_place_then_keeps(
    lake: Lake, own: tuple[Path, str]
) -> None:
    folder, into = own
    latest = f"/subjects/{lake.avro}-value/versions/latest"
    flags = ["--value-format", "avro"]
    subject_version = {"subject": f"{lake.avro}-value", "version": 1, "id": 1, "schema": AVRO}
    with registry({1: (200, {"schema": AVRO}), latest: (200, subject_version)}) as server:
        flags += ["--set", f"registry.url={server.url}"]
        assert lake.export(into, *flags, "--to", "700", topic=lake.avro)["records"] == 700
        server.answers[latest] = 200, {**subject_version, "version": 2, "id": 2, "schema": '"string"'}
        done = lake.export(into, *flags, topic=lake.avro)
        assert (done["records"], done["corrupt"]) == (TYPED - 700, 0)
        assert lake.export(into, *flags, "--check", topic=lake.avro)["findings"] == []
    rows = lake.rows(folder, lake.avro).sort_by("offset").to_pylist()
    orders = [{name: an_order(number)[name] for name in ("id", "name", "tags")} for number in range(TYPED)]
    assert [row["value"] for row in rows] == orders
    assert not any(b"registry" in data or b"http" in data for key, data in objects(folder).items() if "plan" in key)


def test_a_registry_that_is_away_is_an_error_by_name_and_nothing_is_half_committed(
    lake: Lake, own: tuple[Path, str]
) -> None:
    folder, into = own
    flags = ["--value-format", "avro", "--value-schema", AVRO, "--registered", "--set", "registry.url=http://[::1]:9"]
    error = lake.export(into, *flags, topic=lake.avro, code=3)
    assert "schema registry" in error["message"]
    assert [each.name for each in folder.rglob("*.*") if each.is_file()] == ["plan.json"]


def test_a_schema_that_is_none_is_refused_before_anything_is_made(lake: Lake, own: tuple[Path, str]) -> None:
    folder, into = own
    flags = ["--value-format", "json", "--value-schema", "id bigint oops"]
    assert lake.export(into, *flags, topic=lake.orders, code=2)["error"] == "InvalidRequest"
    assert not list(folder.rglob("*.json"))


@pytest.mark.slow
@pytest.mark.spark
def test_the_tasks_of_a_spark_job_make_the_same_typed_files_and_spark_reads_them(
    lake: Lake, own: tuple[Path, str]
) -> None:
    folder, into = own
    flags = ["--value-format", "json", "--value-schema", DDL, "--headers", "map"]
    lake.house.run("export", lake.orders, "--into", into, "--spark", *flags)
    other, there = lake.place("typed-processes")
    lake.house.run("export", lake.orders, "--into", there, *flags)
    assert objects(folder) == objects(other)
    from tierstate.spark.sessions import session

    spark = session()
    try:
        spark.read.parquet(f"{folder}/{lake.orders}").createOrReplaceTempView("orders")
        query = "SELECT count(*), sum(value.id), count(_corrupt.value), sum(size(value.tags)) FROM orders"
        [row] = spark.sql(query).collect()
    finally:
        spark.stop()
    good = [at for at, value in enumerate(ORDERS) if value is not None and value not in POISON]
    broken = sum(value in POISON for value in ORDERS)
    assert tuple(row) == (TYPED, sum(good), broken, sum(len(an_order(at)["tags"]) for at in good))
