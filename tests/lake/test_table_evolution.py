"""The columns of a typed table evolve by command and with the registry, or the table stops and says why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.lake.typed_tables import COUNT, Make, TypedWorld, answer_of, avro_world, columns_of, json_world
from tests.lake.typed_topics import DDL, avro_record
from tests.operations import run_until
from tierstate.lake.table import Change
from tierstate.lake.table_check import check_table
from tierstate.lake.table_commit import FieldChange, commit, evolve_table
from tierstate.lake.table_facts import iceberg_schema
from tierstate.lake.table_files import Attempt
from tierstate.lake.table_follow import Step, TableLimits
from tierstate.runtime.operation import run
from tierstate.state.errors import CorruptData, InvalidRequest, Unavailable
from tierstate.values.form import Form

pytestmark = pytest.mark.extended


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
