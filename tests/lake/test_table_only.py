"""Tables of some of a topic's records: those of one value of a field, and those that do not parse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.lake.exports import EVERY_COLUMN
from tests.lake.tables import TableWorld
from tests.lake.test_table_flat import flat
from tests.lake.test_table_history import delete_below
from tests.lake.test_table_killed import killed_at
from tests.lake.typed_logs import folder_of
from tests.lake.typed_tables import COUNT, Make, TypedWorld, columns_of
from tests.lake.typed_topics import DDL, json_topic
from tests.servers.schema_registry import registry
from tests.values.avro_samples import record, written
from tierstate.lake.columns import Columns, Only
from tierstate.lake.table_check import check_table
from tierstate.lake.table_upkeep import compact
from tierstate.state.errors import InvalidRequest
from tierstate.values.form import Form
from tierstate.values.schema_registry import RegistryAccess

TOPIC = json_topic(COUNT, Random(3))
NESTED = columns_of(DDL[4])


def world_of(golden_log: Make, path: Path, only: Only | None, columns: Columns = NESTED) -> TableWorld:
    return TypedWorld(golden_log, path, TOPIC, replace(columns, only=only))


def offsets(world: TableWorld) -> list[int]:
    """Return the offsets of the rows, after the table was found to be what it should."""
    assert not check_table(world.table(), world.log(), window_bytes=2_000).findings
    rows: list[int] = world.rows().column(world.table().column("offset")).to_pylist()
    return rows


@pytest.mark.essential
def test_what_does_not_parse_is_in_the_dead_letters_and_the_rest_in_the_table(golden_log: Make, tmp_path: Path) -> None:
    every, parsed, dead = (
        world_of(golden_log, tmp_path / name, only)
        for name, only in (("every", None), ("parsed", Only(corrupt=False)), ("dead", Only(corrupt=True)))
    )
    for world in (every, parsed, dead):
        world.follow()
        assert compact(world.table(), world.attempt_id, execute=True).commits
    rows = every.rows()
    corrupt = [row["offset"] for row in rows.to_pylist() if row["_corrupt"]]
    assert offsets(dead) == corrupt
    assert offsets(parsed) == sorted(set(range(COUNT)) - set(corrupt))
    assert [row["_corrupt"]["value"] for row in dead.rows().to_pylist()] == [TOPIC[at].data for at in corrupt]


@pytest.mark.extended
@pytest.mark.parametrize(
    ("columns", "field", "value", "name"),
    [(columns_of(DDL[4]), "name", "bob", "value"), (flat(DDL[4]), "few", "300", None)],
    ids=["of a struct", "flat"],
)
def test_a_table_of_one_value_has_the_records_with_it(
    golden_log: Make, tmp_path: Path, columns: Columns, field: str, value: str, name: str | None
) -> None:
    world = world_of(golden_log, tmp_path, Only(field=field, value=value), columns)
    world.follow()
    rows = world.rows().to_pylist()
    shown: list[Any] = [(row[name] if name else row)[field] for row in rows]
    assert {str(each) for each in shown} == {value}
    every = world_of(golden_log, tmp_path / "every", None, columns)
    every.follow()
    of_all = [(row[name] if name else row) for row in every.rows().to_pylist()]
    assert len(rows) == sum(each is not None and str(each[field]) == value for each in of_all)
    delete_below(world, 60)
    world.follow()
    assert offsets(world)[0] >= 60


ORDER = record(("id", "int"), ("of", "string"), name="shop.Order")
NEWER = record(("id", "long"), ("of", "string"), ("more", ["null", "int"]), name="shop.Order")
PAYMENT = record(("id", "int"), ("cents", "long"), name="shop.Payment")


@pytest.mark.extended
def test_records_of_one_subject_are_rows_and_the_others_do_not_stop_the_table(golden_log: Make, tmp_path: Path) -> None:
    ids = [7_001, 7_002, 7_003]
    kinds = [(ORDER, {"id": 1, "of": "a"}), (PAYMENT, {"id": 2, "cents": 3}), (NEWER, {"id": 4, "of": "b", "more": 5})]
    values: list[bytes | None] = [
        written(*kinds[at % 3 if at > 60 else at % 2], ids[at % 3 if at > 60 else at % 2]) for at in range(120)
    ]
    values[10:14] = [None, b"?", written(ORDER, kinds[0][1], 7_999), written(ORDER, kinds[0][1], 7_001) + b"\0"]
    answers: Any = {id: (200, {"schema": schema}) for id, (schema, _) in zip(ids, kinds, strict=True)}
    orders = [at for at in range(120) if at % (3 if at > 60 else 2) in (0, 2) and not 10 <= at < 14]
    payments = [at for at in range(120) if at % (3 if at > 60 else 2) == 1 and not 10 <= at < 14]
    with registry(answers) as server:
        rows = []
        for number, (schema, name, corrupt) in enumerate(
            [(ORDER, "shop.Order", False), (PAYMENT, "shop.Payment", None), (ORDER, "shop.Order", True)]
        ):
            columns = Columns(EVERY_COLUMN, value=Form("avro", schema, True), only=Only(corrupt, record=name))
            golden = golden_log(path=folder_of(tmp_path / f"{number}", [(None, each) for each in values]))
            access = RegistryAccess(server.url)
            world = TableWorld(golden, tmp_path / f"{number}t", columns=columns, registry=access, grows=("value",))
            world.follow()
            rows.append(offsets(world))
            if not number:
                assert world.table().facts.version == 1, "it grew with its own record"
                assert world.rows().column("value").combine_chunks().type.names == ["id", "of", "more"]
    assert rows == [orders, payments, [11, 12, 13]]


def test_only_values_of_a_registry_have_a_subject() -> None:
    with pytest.raises(InvalidRequest, match="only values of a registry"):
        Columns(EVERY_COLUMN, value=Form("avro", ORDER), only=Only(record="shop.Order")).schema()


@pytest.mark.extended
def test_a_follower_of_some_records_that_is_killed_at_any_step_leaves_them(golden_log: Make, tmp_path: Path) -> None:
    for step in (1, 2, 3, 5, 7):
        world = world_of(golden_log, tmp_path / str(step), Only(corrupt=True))
        assert killed_at(world, step)
        world.follow()
        assert len(offsets(world)) > 10


def test_a_row_that_should_be_in_another_table_is_found_by_the_check(golden_log: Make, tmp_path: Path) -> None:
    world = world_of(golden_log, tmp_path, None)
    world.follow()
    table = world.table()
    versions = (replace(table.facts.columns, only=Only(corrupt=True)),)
    table.facts = replace(table.facts, versions=versions)
    problems = [each.problem for each in check_table(table, world.log()).findings]
    assert any("no records of the log" in problem for problem in problems)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (Columns(EVERY_COLUMN, only=Only(corrupt=True)), "only typed values"),
        (Columns(EVERY_COLUMN, value=Form("json", "a int"), only=Only(field="b", value="1")), "no such field.*field=b"),
        (
            Columns(EVERY_COLUMN, value=Form("json", "a array<int>"), only=Only(field="a", value="1")),
            "cannot be routed by.*field=a",
        ),
    ],
)
def test_a_choice_that_the_values_do_not_have_is_refused(columns: Columns, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        columns.schema()
