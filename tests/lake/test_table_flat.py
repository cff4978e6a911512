"""Flat tables: each field of the value is a column, and the other columns of a record have a prefix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.lake.exports import EVERY_COLUMN
from tests.lake.tables import TableWorld
from tests.lake.test_table_history import delete_below, unclean_election
from tests.lake.test_table_killed import killed_at
from tests.lake.typed_logs import folder_of
from tests.lake.typed_tables import COUNT, Make, TypedWorld, avro_world, columns_of, json_world
from tests.lake.typed_topics import AVRO, DDL
from tierstate.lake.columns import Columns
from tierstate.lake.proof import difference
from tierstate.lake.table_check import check_table
from tierstate.lake.table_facts import iceberg_schema
from tierstate.lake.table_follow import Step, TableLimits
from tierstate.lake.table_upkeep import compact
from tierstate.state.errors import InvalidRequest
from tierstate.values.form import Form

FLAT = "kafka_"


def flat(ddl: str, prefix: str = FLAT) -> Columns:
    return Columns(EVERY_COLUMN, value=Form("json", ddl), prefix=prefix)


def require_flat(flat_world: TableWorld, nested: TableWorld) -> None:
    """Require that the rows are the twin's, whose values are one column, and that the check finds nothing."""
    assert not check_table(flat_world.table(), flat_world.log(), window_bytes=2_000).findings
    rows, twin = flat_world.rows(), nested.rows()
    value = twin.column("value").combine_chunks()
    columns = dict(zip([each.name for each in value.type], value.flatten(), strict=True))
    columns |= {f"{FLAT}{name}": twin.column(name) for name in EVERY_COLUMN if name != "value"}
    expected = pa.table({**columns, "_corrupt": twin.column("_corrupt")})
    assert set(rows.column_names) == set(expected.column_names)
    assert difference(rows, expected.select(rows.column_names), f"{FLAT}offset") is None


@pytest.mark.essential
def test_a_flat_table_that_evolves_loses_branches_and_is_compacted_has_the_fields_of_its_values(
    golden_log: Make, tmp_path: Path
) -> None:
    nested = json_world(golden_log, tmp_path / "nested")
    worlds = [nested, TypedWorld(golden_log, tmp_path / "flat", nested.topic, flat(DDL[0]))]
    for world, made in zip(worlds, (columns_of, flat), strict=True):
        world.follow_to(100)
        world.evolve(made(DDL[3]))
        world.follow_to(170)
        world.evolve(made(DDL[4]))
        delete_below(world, 33)
        unclean_election(world, 9, 150)
        assert {Step.EXPIRED, Step.LOST_BRANCH} <= {each.step for each in world.follow()}
        world.follow_to(COUNT)
    require_flat(worlds[1], worlds[0])
    assert compact(worlds[1].table(), worlds[1].attempt_id, execute=True).commits
    assert not check_table(worlds[1].table(), worlds[1].log()).findings


@pytest.mark.extended
def test_a_flat_table_grows_with_the_registry(golden_log: Make, tmp_path: Path) -> None:
    columns = Columns(EVERY_COLUMN, value=Form("avro", json.dumps(AVRO[0]), registered=True), prefix=FLAT)
    limits = TableLimits(file_bytes=700, commit_bytes=10**6)
    with avro_world(golden_log, tmp_path / "nested", limits=limits) as nested:
        nested.follow()
        world = TypedWorld(
            golden_log,
            tmp_path / "flat",
            nested.topic,
            columns,
            registry=nested.registry,
            grows=("value",),
            limits=limits,
        )
        assert [each.step for each in world.follow()].count(Step.EVOLVED) == 2
        require_flat(world, nested)


def spread(golden_log: Make, path: Path, columns: Columns, **world: Any) -> TableWorld:
    """Return the world of a topic whose records have ascending ids."""
    records = [(b"k", json.dumps({"id": at, "of": f"c{at % 7}"}).encode()) for at in range(200)]
    golden = golden_log(path=folder_of(path / "topic", records, a_batch=5, a_segment=40, apart_ms=1000))
    return TableWorld(
        golden, path / "table", columns=columns, limits=TableLimits(file_bytes=700, commit_bytes=1_500), **world
    )


def test_a_filter_on_a_field_plans_only_the_files_that_may_have_it(golden_log: Make, tmp_path: Path) -> None:
    world = spread(golden_log, tmp_path, flat("id bigint, of string"))
    world.follow()
    scan = world.table().iceberg.scan
    (task,) = scan(row_filter="id == 5").plan_files()
    assert len(world.named_files()) > 5
    assert scan(row_filter="id == 5").to_arrow().column("kafka_offset").to_pylist() == [5]
    assert task.file.file_path in {each.file_path for each in world.table().data_files("kafka_offset == 5")}


@pytest.mark.extended
def test_a_follower_of_a_flat_table_that_is_killed_at_any_step_leaves_it_its_log(
    golden_log: Make, tmp_path: Path
) -> None:
    killed = 0
    for step in range(1, 8):
        world = spread(golden_log, tmp_path / str(step), flat("id bigint, of string"))
        killed += killed_at(world, step)
        world.follow()
        assert not check_table(world.table(), world.log()).findings
        assert world.rows().column("id").to_pylist() == list(range(200))
    assert killed == 7


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (flat("kafka_offset bigint"), "field=kafka_offset column=kafka_offset"),
        (flat("Kafka_Offset bigint"), "field=Kafka_Offset column=kafka_offset"),
        (flat("topic string", ""), "another --metadata-prefix.*field=topic"),
        (flat("_corrupt string"), "field=_corrupt"),
        (flat("id int", "a-b"), "letters, digits"),
        (Columns(EVERY_COLUMN, value=Form("string"), prefix=FLAT), "only values with fields can be flat"),
        (Columns(EVERY_COLUMN, prefix=FLAT), "only values with fields can be flat"),
    ],
)
def test_columns_that_cannot_be_flat_are_refused_by_name(columns: Columns, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        columns.schema()


def test_a_field_with_the_name_of_a_metric_or_a_delta_is_a_column_like_others(golden_log: Make, tmp_path: Path) -> None:
    """`offset` is stored as deltas, and `value` has no bounds, only where they are the record's."""
    records = [(b"k", json.dumps({"offset": f"x{at}", "value": at}).encode()) for at in range(20)]
    golden = golden_log(path=folder_of(tmp_path / "topic", records, a_batch=5, a_segment=40, apart_ms=1))
    world = TableWorld(golden, tmp_path / "table", columns=flat("offset string, value int"))
    world.follow()
    assert not check_table(world.table(), world.log()).findings
    assert not list(world.table().iceberg.scan(row_filter="value > 100").plan_files())


def test_iceberg_has_the_fields_first_and_the_bytes_that_do_not_parse_last() -> None:
    names = [each.name for each in iceberg_schema(flat("id int, at timestamp").schema()).fields]
    assert names[:2] == ["id", "at"]
    assert names[2] == "kafka_key"
    assert names[-1] == "_corrupt"
