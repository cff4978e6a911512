"""Typed tables: every record is a row of its columns, values that do not parse keep their bytes, and schemas evolve."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from tests.lake.exports import EVERY_COLUMN
from tests.lake.tables import TableWorld
from tests.lake.test_table_check import change
from tests.lake.test_table_history import delete_below, unclean_election
from tests.lake.typed_logs import avro_long, folder_of
from tests.lake.typed_tables import COUNT, Make, TypedWorld, answer_of, avro_world, columns_of, json_world
from tests.lake.typed_topics import DDL, Meant, avro_record, json_topic
from tests.operations import run_until
from tierstate.lake.columns import Columns
from tierstate.lake.table import Change
from tierstate.lake.table_check import check_table
from tierstate.lake.table_commit import FieldChange, commit, evolve_table
from tierstate.lake.table_facts import iceberg_schema
from tierstate.lake.table_files import Attempt, rows_between
from tierstate.lake.table_follow import Step, TableLimits
from tierstate.lake.table_place import TablePlace
from tierstate.lake.table_upkeep import compact
from tierstate.runtime.operation import run
from tierstate.state.errors import CorruptData, InvalidRequest, Unavailable
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


@pytest.mark.extended
def test_a_row_that_was_read_before_the_table_evolved_is_not_committed_after_it(
    golden_log: Make, tmp_path: Path
) -> None:
    world = json_world(golden_log, tmp_path)
    world.follow_to(100)
    world.produce(COUNT)
    act = world.round()
    while not next(act).startswith("write manifests"):
        pass
    world.evolve(columns_of(DDL[4]))
    assert run(act).step is Step.RACED
    world.follow()
    world.require_same()
    assert world.named_files() == world.data_files()


def test_the_second_of_two_that_evolve_a_table_does_nothing(golden_log: Make, tmp_path: Path) -> None:
    """Iceberg sees no change: both columns are an int. But rows are made by one or by the other."""
    world = json_world(golden_log, tmp_path)
    world.follow_to(100)
    acts = []
    for ddl in DDL[1:3]:
        table = world.table()
        acts.append(commit(table, Attempt(world.attempt_id()), Change(table.place(), columns=columns_of(ddl))))
    for act in acts:
        next(act)
        next(act)
    assert [run(act) for act in acts] == [True, False]
    assert world.table().facts.versions == (columns_of(DDL[0]), columns_of(DDL[1]))


@pytest.mark.extended
def test_a_table_can_evolve_before_its_first_row(golden_log: Make, tmp_path: Path) -> None:
    world = json_world(golden_log, tmp_path)
    world.evolve(columns_of(DDL[4]))
    world.follow()
    assert world.table().place().partitions[0].versions == ((1, 0),)
    world.require_same()


def test_columns_that_the_table_cannot_become_are_refused_and_nothing_happens(golden_log: Make, tmp_path: Path) -> None:
    world = json_world(golden_log, tmp_path)
    world.follow_to(100)
    before = world.table().iceberg.metadata
    with pytest.raises(InvalidRequest, match=r"the columns of a table cannot become these.*value\.name"):
        world.evolve(columns_of("id int, name int"))
    assert world.table().iceberg.metadata == before


def test_a_version_that_the_table_does_not_tell_is_named(golden_log: Make, tmp_path: Path) -> None:
    world = json_world(golden_log, tmp_path)
    with pytest.raises(CorruptData, match=r"does not say what these columns were.*version=1"):
        world.table().rows_by(1)


@pytest.mark.extended
def test_a_table_grows_with_what_the_registry_has(golden_log: Make, tmp_path: Path) -> None:
    with avro_world(golden_log, tmp_path, limits=TableLimits(file_bytes=700, commit_bytes=10**6)) as world:
        rounds = world.follow()
        assert [each.step for each in rounds].count(Step.EVOLVED) == 2
        assert all(each.rows == each.files == 0 for each in rounds if each.step is Step.EVOLVED)
        assert len(world.table().facts.versions) == 3
        assert sum(each.corrupt for each in rounds) == world.require_same() > 10
        assert world.named_files() == world.data_files()


def asked_anew(world: TypedWorld) -> TypedWorld:
    """Use a new access of the registry, as another process would: an access keeps the answers about an id."""
    assert world.registry is not None
    world.registry = replace(world.registry, timeout=world.registry.timeout + 0.001)
    return world


@pytest.mark.extended
def test_a_registry_that_never_settles_stops_the_table_until_it_does(golden_log: Make, tmp_path: Path) -> None:
    limits = TableLimits(file_bytes=700, commit_bytes=1_500, evolutions=4)
    with avro_world(golden_log, tmp_path, limits=limits) as world:
        world.follow_to(100)
        rows, before = world.rows().num_rows, world.table().facts.version
        assert rows
        settled = dict(world.server.answers)
        fields: list[tuple[str, Any]] = [("id", "long")]

        def grow(path: str) -> None:
            fields.append((f"more_{len(fields)}", "long"))
            world.server.answers = {each: answer_of(avro_record(*fields)) for each in settled}

        world.server.before = grow
        world.produce(COUNT)
        for _ in range(limits.evolutions):
            assert run(asked_anew(world).round()).step is Step.EVOLVED
        for _ in range(2):  # a new follower goes on counting
            with pytest.raises(InvalidRequest, match=r"no row was written between.*table=kafka\.t.*evolved=4 most=4"):
                run(asked_anew(world).round())
        assert world.table().facts.version == before + limits.evolutions
        assert world.rows().num_rows == rows
        assert world.named_files() == world.data_files()
        world.server.before = lambda path: None
        world.server.answers = settled
        asked_anew(world).follow()
        world.require_same()


@pytest.mark.extended
def test_a_registry_that_does_not_answer_stops_a_table_and_nothing_is_corrupt(golden_log: Make, tmp_path: Path) -> None:
    with avro_world(golden_log, tmp_path) as world:
        replies, world.server.answers = world.server.answers, dict.fromkeys(world.server.answers, (500, "away"))
        with pytest.raises(Unavailable):
            world.follow()
        assert not world.data_files()
        world.server.answers = replies
        world.follow()
        world.require_same()


def test_a_schema_that_the_table_cannot_become_stops_it_and_names_the_field(golden_log: Make, tmp_path: Path) -> None:
    with avro_world(golden_log, tmp_path) as world:
        world.follow_to(100)
        world.server.answers["/schemas/ids/3"] = answer_of(avro_record(("id", "string")))
        with pytest.raises(InvalidRequest, match="id"):
            world.follow_to(COUNT)
        assert world.table().place().partitions[0].end >= 100
        assert world.named_files() == world.data_files()


def test_a_table_that_does_not_grow_leaves_out_what_its_schema_lacks(golden_log: Make, tmp_path: Path) -> None:
    with avro_world(golden_log, tmp_path, grows=()) as world:
        world.follow()
        world.require_same()
        assert world.table().facts.version == 0


@pytest.mark.extended
@pytest.mark.parametrize("step", range(2))  # manifests, the commit
def test_a_writer_that_dies_while_it_evolves_a_table_leaves_it_as_it_was(
    golden_log: Make, tmp_path: Path, step: int
) -> None:
    world = json_world(golden_log, tmp_path)
    world.follow_to(100)
    table, before = world.table(), world.table().iceberg.metadata
    act = commit(table, Attempt(world.attempt_id()), Change(table.place(), columns=columns_of(DDL[3])))
    assert len(run_until(act, step)) == step
    assert world.table().iceberg.metadata == before
    world.evolve(columns_of(DDL[3]))
    world.follow_to(COUNT)
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


@pytest.mark.extended
def test_a_table_evolves_to_what_is_wanted_and_again_is_nothing(golden_log: Make, tmp_path: Path) -> None:
    world = json_world(golden_log, tmp_path)
    expected = {"value": Form("json", "id bigint, price double, at struct<x int>, tags array<string>")}
    results = [
        FieldChange("value.id", "int32", "int64"),
        FieldChange("value.price", None, "double"),
        FieldChange("value.at", None, "struct<x: int32>"),
        FieldChange("value.tags", None, "list<element: string>"),
    ]
    assert evolve_table(world.table(), expected, world.attempt_id, execute=False) == results
    assert world.table().facts.version == 0
    assert evolve_table(world.table(), expected, world.attempt_id, execute=True) == results
    assert world.table().facts.version == 1
    assert world.table().iceberg.schema().find_field("value.name"), "what is gone stays"
    assert evolve_table(world.table(), expected, world.attempt_id, execute=True) == []
    assert world.table().facts.version == 1
    world.evolve(columns_of("id bigint, name string, price double, at struct<x bigint, y date>, tags array<string>"))
    world.follow()
    assert not check_table(world.table(), world.log()).findings


def test_types_that_iceberg_lacks_are_refused_with_their_field() -> None:
    two = pa.struct([("a", pa.struct([("b", pa.int32())])), ("a.b", pa.int32())])
    with pytest.raises(InvalidRequest, match=r"two fields of a table would have one name.*value\.a\.b"):
        iceberg_schema(pa.schema([("value", two)]))
    with pytest.raises(InvalidRequest, match=r"cannot hold this type.*value\.t"):
        iceberg_schema(pa.schema([("value", pa.struct([("t", pa.duration("s"))]))]))


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
