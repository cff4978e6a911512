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
from tests.lake.typed_tables import COUNT, Make, TypedWorld, columns_of
from tests.lake.typed_topics import DDL, json_topic
from tierstate.lake.columns import Columns, Only
from tierstate.lake.table_check import check_table
from tierstate.lake.table_upkeep import compact
from tierstate.state.errors import InvalidRequest
from tierstate.values.form import Form

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
