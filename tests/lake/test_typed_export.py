"""Typed exports: values that parse are a column of one type, others are kept as they were; both are the log's."""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.fetch.two_tiers import Golden
from tests.lake.exports import EVERY_COLUMN, Killed, World
from tests.lake.test_export import CASES, log_digest
from tests.lake.typed_logs import (
    AVRO,
    DDL,
    POISON,
    Pair,
    an_order,
    avro_long,
    avro_order,
    folder_of,
    json_order,
    poisoned,
)
from tests.servers.schema_registry import registry
from tierstate.lake.columns import Columns
from tierstate.lake.export_check import check
from tierstate.log.record_columns import record_schema
from tierstate.log.record_digest import RecordDigest
from tierstate.state.errors import InvalidRequest, Unavailable
from tierstate.storage.directory import DirectoryStore
from tierstate.values.form import Form
from tierstate.values.schema_registry import RegistryAccess

Make = Callable[..., Golden]
COUNT = 500
JSON = Form("json", DDL)
TYPED = Columns(EVERY_COLUMN, Form("string"), JSON, "map")


@pytest.fixture
def log_of(golden_log: Make, tmp_path: Path) -> Callable[[Sequence[Pair]], Golden]:
    def made(records: Sequence[Pair]) -> Golden:
        golden = golden_log(path=folder_of(tmp_path / "log", records))
        golden.local.local_start = golden.folder.bases[-1] - 3
        return golden

    return made


LogOf = Callable[[Sequence[Pair]], Golden]


def orders() -> list[Pair]:
    values = poisoned([json_order(number) for number in range(COUNT)])
    return [(b"\xff" if at % 20 == 3 else b"key-%d" % (at % 9), value) for at, value in enumerate(values)]


def rows_of(world: World) -> pa.Table:
    return pa.concat_tables(world.tables()).sort_by("offset")


def expected(number: int) -> dict[str, Any]:
    order = an_order(number)
    at = datetime.fromisoformat(order["at"])
    return {**order, "price": Decimal(order["price"]), "at": at.astimezone(UTC)}


def test_json_that_parses_is_a_struct_and_what_does_not_keeps_its_bytes(log_of: LogOf) -> None:
    records = orders()
    world = World(log_of(records), columns=TYPED)
    done = world.export().do(world.wanted())
    rows = rows_of(world)
    assert rows.schema.names == [*EVERY_COLUMN, "_corrupt"]
    corrupt = 0
    for at, ((key, value), row) in enumerate(zip(records, rows.to_pylist(), strict=True)):
        bad_key, bad_value = key == b"\xff", value in POISON
        corrupt += bad_key or bad_value
        assert row["key"] == (None if bad_key or key is None else key.decode())
        assert row["value"] == (None if bad_value or value is None else expected(at))
        kept = {"key": key if bad_key else None, "value": value if bad_value else None}
        assert row["_corrupt"] == (kept if bad_key or bad_value else None)
        trace = [b"%d" % at, None]
        assert row["headers"] == ([("trace", trace), ("hop", [b"1"])] if at % 3 == 0 else None)
    assert done.corrupt == corrupt > COUNT // 20
    [manifest] = [json.loads(data) for key, data in world.objects().items() if key.endswith("manifest.json")]
    assert manifest["corrupt"] == sum(each["corrupt"] for each in manifest["files"]) == corrupt
    for entry in manifest["files"]:
        file = pq.read_table(io.BytesIO(world.place.get(entry["key"])))
        assert entry["corrupt"] == len(file) - file["_corrupt"].null_count


NOTHING = Form("avro", '{"type": "fixed", "name": "Nothing", "size": 65000}')
"""No value of the golden logs has this form."""


@pytest.mark.extended
@pytest.mark.parametrize("case", CASES)
def test_every_byte_of_an_unfit_topic_is_in_corrupt_and_none_is_lost(golden_log: Make, case: str) -> None:
    golden = golden_log(case)
    golden.local.local_start = golden.folder.bases[-1] // 2
    world = World(golden, columns=Columns(EVERY_COLUMN, NOTHING, NOTHING))
    done = world.export().do(world.wanted())
    rows = rows_of(world)
    assert rows["key"].null_count == rows["value"].null_count == len(rows)
    whole = rows["_corrupt"].combine_chunks()
    raw = {name: pc.struct_field(whole, name) for name in ("key", "value")}
    digest = RecordDigest()
    columns = [raw.get(name, rows.column(name)) for name in EVERY_COLUMN]
    digest.update(pa.table(columns, names=list(EVERY_COLUMN)).cast(record_schema()).combine_chunks())
    assert (digest.count, digest.hexdigest()) == log_digest(world)
    assert done.corrupt == len(whole) - whole.null_count > 0
    assert check(world.export()).findings == []


def test_a_value_that_is_no_number_is_the_logs(log_of: LogOf) -> None:
    """NaN equals nothing, itself included; the check compares the bits."""
    values = [struct.pack("<d", value) for value in (0.5, math.nan, math.inf)] * 100
    world = World(
        log_of([(None, value) for value in values]), columns=Columns(EVERY_COLUMN, None, Form("avro", '"double"'))
    )
    world.export().do(world.wanted())
    assert str(rows_of(world)["value"].to_pylist()[:3]) == "[0.5, nan, inf]"
    assert check(world.export()).findings == []


def test_bare_avro_is_typed_keys_and_values(log_of: LogOf) -> None:
    values = poisoned([avro_order(number) for number in range(COUNT)])
    records = [(b"\x80" if at % 20 == 3 else avro_long(at - 9), value) for at, value in enumerate(values)]
    columns = Columns(EVERY_COLUMN, Form("avro", '"long"'), Form("avro", AVRO))
    world = World(log_of(records), columns=columns)
    world.export().do(world.wanted())
    for at, ((key, value), row) in enumerate(zip(records, rows_of(world).to_pylist(), strict=True)):
        order = {name: an_order(at)[name] for name in ("id", "name", "tags")}
        assert row["key"] == (None if key == b"\x80" else at - 9)
        assert row["value"] == (None if value is None or value in POISON else order)
        kept = row["_corrupt"] or {"key": None, "value": None}
        assert kept == {"key": key if key == b"\x80" else None, "value": value if value in POISON else None}
    assert check(world.export()).findings == []


FIELDS = json.loads(AVRO)["fields"]
OLDER = json.dumps({**json.loads(AVRO), "fields": [{"name": "id", "type": "int"}, FIELDS[1]]})
PINNED = json.dumps({**json.loads(AVRO), "fields": [*FIELDS[:2], {"name": "more", "type": "int", "default": 7}]})
SCHEMAS: dict[int | str, tuple[int, Any]] = {1: (200, {"schema": AVRO}), 2: (200, {"schema": OLDER})}


def registered_world(log_of: LogOf, url: str) -> tuple[World, list[bytes | None]]:
    """Return values of schema 1 and, each third, of schema 2; the registry lacks the schema of each tenth."""
    values: list[bytes | None] = []
    for number in range(COUNT):
        schema, id = (OLDER, 2) if number % 3 == 0 else (AVRO, 1)
        values.append(avro_order(number, schema, 9 if number % 10 == 0 else id))
    form = Form("avro", PINNED, registered=True)
    golden = log_of([(None, value) for value in values])
    return World(golden, columns=Columns(EVERY_COLUMN, value=form), registry=RegistryAccess(url)), values


def test_avro_of_a_registry_is_resolved_to_the_schema_of_the_plan(log_of: LogOf) -> None:
    with registry(SCHEMAS) as server:
        world, values = registered_world(log_of, server.url)
        world.export().do(world.wanted())
        rows = rows_of(world).to_pylist()
        assert check(world.export()).findings == []
    for number, row in enumerate(rows):
        order = {"id": number, "name": an_order(number)["name"], "more": 7}
        bad = number % 10 == 0
        assert row["value"] == (None if bad else order)
        assert row["_corrupt"] == ({"key": None, "value": values[number]} if bad else None)


def test_a_registry_that_is_away_is_named_and_nothing_is_half_committed(log_of: LogOf) -> None:
    with registry(SCHEMAS) as server:
        world, _ = registered_world(log_of, server.url)
        world.export().do(world.wanted())
    away = World(world.golden, columns=world.shape.columns, registry=RegistryAccess(server.url))
    with pytest.raises(Unavailable, match="schema registry"):
        away.export().do(away.wanted())
    assert [key.rsplit("/", 1)[1] for key in away.objects()] == ["plan.json"]


def test_killed_before_any_step_a_typed_export_leaves_the_very_same_objects(log_of: LogOf) -> None:
    golden = log_of(orders())
    world = World(golden, columns=TYPED, file_bytes=5_000)
    world.export().do(world.wanted())
    expected = world.objects()
    steps = len([key for key in expected if key.endswith(".parquet") or "/task-" in key])
    for step in range(steps):
        again = World(golden, columns=TYPED, file_bytes=5_000)
        again.dies_at = step
        with pytest.raises(Killed):
            again.export().do(again.wanted())
        again.dies_at = None
        again.export().do(again.wanted())
        assert again.objects() == expected
    assert steps > 4


def test_typed_files_are_the_same_bytes_for_any_windows(log_of: LogOf) -> None:
    golden = log_of(orders())
    made = []
    for piece_bytes in (1, 5_000, 8 << 20):
        world = World(golden, columns=TYPED)
        world.piece_bytes = piece_bytes
        world.export().do(world.wanted())
        made.append(world.objects())
    assert made[0] == made[1] == made[2]


def test_files_are_the_same_bytes_for_any_pieces_of_values(log_of: LogOf, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = log_of(orders())
    made = []
    for at_once in (7, 1 << 20):
        monkeypatch.setattr("tierstate.lake.columns.AT_ONCE", at_once)
        world = World(golden, columns=TYPED)
        world.export().do(world.wanted())
        made.append(world.objects())
    assert made[0] == made[1]


def rewritten(world: World, change: Callable[[pa.Table], pa.Table]) -> World:
    """Return the place with one file's rows changed, and a ledger that vouches for them."""
    from tests.lake.test_check import with_object
    from tierstate.lake.export_ledger import document
    from tierstate.lake.export_task import sha256_of
    from tierstate.lake.names import task_key

    [plan] = world.ledger.plans()
    done = world.ledger.done(plan)[0]
    [file, *others] = done.files
    into, rows = io.BytesIO(), pq.ParquetFile(io.BytesIO(world.place.get(file.key)))
    with pq.ParquetWriter(into, rows.schema_arrow) as writer:
        for number in range(rows.num_row_groups):
            writer.write_table(change(rows.read_row_group(number)))
    changed = with_object(world, file.key, into.getvalue())
    size, sha256 = sha256_of(changed.place, file.key)
    claim = replace(done, files=(replace(file, bytes=size, sha256=sha256), *others))
    return with_object(changed, task_key(plan, 0), document(claim.as_json()))


def without_corrupt(rows: pa.Table) -> pa.Table:
    at = rows.schema.get_field_index("_corrupt")
    return rows.set_column(at, "_corrupt", pa.nulls(len(rows), rows.schema.field(at).type))


def other_ids(rows: pa.Table) -> pa.Table:
    at, values = rows.schema.get_field_index("value"), rows["value"].combine_chunks()
    fields = [pc.struct_field(values, [each]) for each in range(values.type.num_fields)]
    fields[0] = pc.add(fields[0], 1)
    made = pa.StructArray.from_arrays(fields, fields=list(values.type), mask=values.is_null())
    return rows.set_column(at, "value", made)


@pytest.mark.parametrize(("change", "column"), [(without_corrupt, "_corrupt"), (other_ids, "value")])
def test_a_typed_value_that_is_not_the_logs_is_found(
    log_of: LogOf, change: Callable[[pa.Table], pa.Table], column: str
) -> None:
    world = World(log_of(orders()), columns=TYPED)
    world.export().do(world.wanted())
    assert [each.problem for each in check(world.export()).findings] == []
    problems = [each.problem for each in check(rewritten(world, change).export()).findings]
    assert problems == [f"the column {column} is not the log's"]


def test_a_manifest_that_says_another_count_of_corrupt_records_is_found(log_of: LogOf) -> None:
    from tests.lake.test_check import with_object
    from tierstate.lake.export_ledger import document
    from tierstate.lake.names import task_key

    world = World(log_of(orders()), columns=TYPED)
    world.export().do(world.wanted())
    [plan] = world.ledger.plans()
    done = world.ledger.done(plan)[0]
    claim = replace(done, files=(replace(done.files[0], corrupt=0), *done.files[1:]))
    other = with_object(world, task_key(plan, 0), document(claim.as_json()))
    [finding] = check(other.export()).findings
    assert "the manifest says 0" in finding.problem


def test_a_place_has_one_form_of_its_values(log_of: LogOf) -> None:
    world = World(log_of(orders()), columns=TYPED)
    world.export().do(world.wanted(0, 100))
    for columns in (
        Columns(EVERY_COLUMN),
        replace(TYPED, headers="list"),
        replace(TYPED, value=Form("json", "id int")),
        replace(TYPED, key=None),
    ):
        other = World(world.golden, world.place, columns=columns)
        with pytest.raises(InvalidRequest, match="another shape"):
            other.export().do(other.wanted())


def test_row_groups_tell_the_range_of_every_field_of_a_struct(log_of: LogOf) -> None:
    world = World(log_of(orders()), columns=TYPED)
    world.export().do(world.wanted())
    for data in (data for key, data in world.objects().items() if key.endswith(".parquet")):
        file = pq.ParquetFile(io.BytesIO(data))
        for number in range(file.num_row_groups):
            ids = pc.struct_field(file.read_row_group(number)["value"].combine_chunks(), "id")
            group = file.metadata.row_group(number)
            stats = {group.column(at).path_in_schema: group.column(at).statistics for at in range(group.num_columns)}
            id_statistics = stats["value.id"]
            assert (id_statistics.min, id_statistics.max) == (pc.min(ids).as_py(), pc.max(ids).as_py())
            for leaf in ("value.name", "value.price", "value.at", "value.place.x", "value.tags.list.element", "key"):
                assert stats[leaf].has_min_max, leaf


def test_other_readers_of_parquet_see_the_same_rows(log_of: LogOf, tmp_path: Path) -> None:
    records = orders()
    world = World(log_of(records), DirectoryStore(tmp_path / "lake"), columns=TYPED)
    world.export().do(world.wanted())
    good = [at for at, (_, value) in enumerate(records) if value is not None and value not in POISON]
    every = f"{tmp_path}/lake/t/*/*.parquet"
    query = f"""SELECT count(*), sum(value.id), sum(value.price), max(value.place.x), sum(len(value.tags)),
        count(*) FILTER (_corrupt IS NOT NULL) FROM read_parquet('{every}')"""
    totals = (
        sum(good),
        sum(expected(at)["price"] for at in good),
        max(good) / 4,
        sum(len(expected(at)["tags"]) for at in good),
    )
    corrupt = sum(key == b"\xff" or value in POISON for key, value in records)
    assert duckdb.execute(query).fetchall() == [(COUNT, *totals, corrupt)]
    values = pl.scan_parquet(every).filter(pl.col("_corrupt").is_null()).select(pl.col("value").struct.unnest())
    frame = values.collect()
    typed = [at for at in good if records[at][0] != b"\xff"]
    assert frame["id"].drop_nulls().to_list() == typed
    assert frame["price"].sum() == sum(expected(at)["price"] for at in typed)
