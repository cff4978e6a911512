"""Typed tables: every record is a row of its columns, what does not parse keeps its bytes, and schemas evolve."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from tests.lake.test_table_history import delete_below, unclean_election
from tests.lake.typed_tables import COUNT, Make, TypedWorld, columns_of, json_world
from tests.lake.typed_topics import DDL, json_topic
from tierstate.lake.table_evolve import evolve
from tierstate.lake.table_files import Attempt
from tierstate.lake.table_follow import Step
from tierstate.lake.table_upkeep import compact
from tierstate.leader.act import run
from tierstate.state.errors import CorruptData, InvalidRequest


def test_a_typed_table_is_its_log_and_what_does_not_parse_keeps_its_bytes(golden_log: Make, tmp_path: Path) -> None:
    world = json_world(golden_log, tmp_path, DDL[2])
    rounds = world.follow()
    corrupt = world.require_same()
    assert sum(each.corrupt for each in rounds) == corrupt > 10


def test_headers_as_a_map_are_the_logs(golden_log: Make, tmp_path: Path) -> None:
    world = TypedWorld(golden_log, tmp_path, json_topic(COUNT, Random(3)), columns_of(DDL[2], "map"))
    world.follow()
    world.require_same()
    shown = [row["headers"] for row in world.rows().to_pylist() if row["headers"]]
    assert len(shown) > COUNT // 4
    assert {json.dumps(dict(each), default=str) for each in shown} == {'{"a": ["b\'1\'", "b\'2\'"], "b": [null]}'}


def test_after_it_evolved_older_rows_have_null_and_wider_numbers(golden_log: Make, tmp_path: Path) -> None:
    world = json_world(golden_log, tmp_path)
    world.follow_to(100)
    world.evolve(columns_of(DDL[1]))
    world.follow_to(170)
    world.evolve(columns_of(DDL[2]))
    world.follow_to(COUNT)
    world.require_same()
    assert [(each.version, each.start) for each in world.table().place().partitions[0].versions] == [
        (0, 0),
        (1, 100),
        (2, 170),
    ]
    values = [row["value"] for row in world.rows().to_pylist() if row["value"]]
    assert {tuple(each) for each in values} == {("id", "name", "price", "tags")}
    assert values[0]["price"] is None
    assert any(each["price"] is not None for each in values)
    assert values[-1]["id"] > 2**32


def test_compacting_and_taking_out_leave_typed_rows_as_they_are(golden_log: Make, tmp_path: Path) -> None:
    world = json_world(golden_log, tmp_path)
    world.follow_to(100)
    world.evolve(columns_of(DDL[2]))
    world.follow_to(COUNT)
    before = world.rows()
    assert compact(world.table(), world.attempt_id, execute=True).commits
    assert world.rows().to_pylist() == before.to_pylist()
    delete_below(world, 33)
    assert [each.step for each in world.follow()] == [Step.EXPIRED]
    assert world.rows().to_pylist() == before.slice(33).to_pylist()
    world.require_same()


def test_what_is_appended_again_after_a_lost_branch_is_of_the_newer_columns(golden_log: Make, tmp_path: Path) -> None:
    world = json_world(golden_log, tmp_path)
    world.follow_to(200)
    world.evolve(columns_of(DDL[2]))
    unclean_election(world, 9, 150)
    assert [each.step for each in world.follow()] == [Step.LOST_BRANCH]
    world.follow_to(COUNT)
    [reach] = world.table().place().partitions.values()
    assert [(each.version, each.start) for each in reach.versions] == [(0, 0), (1, 150)]
    world.require_same()


def test_a_row_that_was_read_before_the_table_evolved_is_not_committed_after_it(
    golden_log: Make, tmp_path: Path
) -> None:
    world = json_world(golden_log, tmp_path)
    world.follow_to(100)
    world.produce(COUNT)
    act = world.round()
    while not next(act).startswith("write manifests"):
        pass
    world.evolve(columns_of(DDL[2]))
    assert run(act).step is Step.RACED
    world.follow()
    world.require_same()
    assert world.named_files() == world.data_files()


def test_of_two_that_evolve_a_table_one_is_first_and_the_other_does_nothing(golden_log: Make, tmp_path: Path) -> None:
    world = json_world(golden_log, tmp_path)
    world.follow_to(100)
    acts = []
    for ddl in DDL[1:]:
        table = world.table()
        acts.append(evolve(table, Attempt(world.attempt_id()), table.place(), columns_of(ddl)))
    for act in acts:
        next(act)
        next(act)
    assert [run(act) for act in acts] == [True, False]
    assert world.table().facts.versions == (columns_of(DDL[0]), columns_of(DDL[1]))
    assert "value.tags" not in world.table().iceberg.schema().column_names


def test_a_table_can_evolve_before_its_first_row(golden_log: Make, tmp_path: Path) -> None:
    world = json_world(golden_log, tmp_path)
    world.evolve(columns_of(DDL[2]))
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
