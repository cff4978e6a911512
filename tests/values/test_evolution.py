"""Evolution: the form that has the columns of two reads earlier values as before."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.servers.schema_registry import registry
from tests.values.avro_samples import record, written
from tierstate.state.errors import InvalidRequest
from tierstate.values.avro_values import _writer
from tierstate.values.ddl import ddl_of, struct_of
from tierstate.values.evolution import evolved
from tierstate.values.form import Form
from tierstate.values.open import open_reader
from tierstate.values.schema_registry import RegistryAccess

LEAVES = "boolean tinyint smallint int bigint float double decimal(9,2) decimal(38,0) string date timestamp".split()
KINDS = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: (
        st.builds("array<{}>".format, inner)
        | st.builds("map<string,{}>".format, inner)
        | st.builds("struct<`a b`:{},c:{}>".format, inner, inner)
    ),
    max_leaves=5,
)
STRUCTS = st.lists(KINDS, min_size=1, max_size=4).map(
    lambda kinds: ", ".join(f"`{number}``é` {kind}" for number, kind in enumerate(kinds))
)


@given(STRUCTS)
def test_a_schema_that_is_written_as_ddl_is_read_as_itself(ddl: str) -> None:
    kind = struct_of(ddl, "the schema")
    assert struct_of(ddl_of(kind), "the schema") == kind


@pytest.mark.parametrize(
    ("ours", "wanted", "both"),
    [
        ("a int", "a int, b string", "a int, b string"),
        ("a int, b string", "a int", "a int, b string"),
        ("a int", "a bigint", "a bigint"),
        ("a bigint", "a tinyint", "a bigint"),
        ("a float", "a double", "a double"),
        ("a decimal(5,2)", "a decimal(9,2)", "a decimal(9,2)"),
        ("a decimal(9,2)", "a decimal(5,2)", "a decimal(9,2)"),
        ("a struct<x:int>", "a struct<y:int, x:bigint>", "a struct<x: bigint, y: int>"),
        ("a array<struct<x:int>>", "a array<struct<x:int,y:date>>", "a array<struct<x: int, y: date>>"),
        ("a map<string,float>", "a map<string,double>", "a map<string, double>"),
        ("b int", "`a b` date", "b int, `a b` date"),
    ],
)
def test_json_evolves_by_added_fields_and_wider_types_and_drops_none(ours: str, wanted: str, both: str) -> None:
    form = evolved(Form("json", ours), Form("json", wanted))
    assert form.kind() == struct_of(both, "the schema")
    assert evolved(form, Form("json", wanted)) is form
    assert evolved(form, Form("json", ours)) is form


@pytest.mark.parametrize(
    ("ours", "wanted", "says"),
    [
        ("a int", "a string", "field=a type=int wanted=string"),
        ("a int", "a double", "field=a type=int wanted=double"),
        ("a decimal(5,2)", "a decimal(9,3)", r"field=a type=decimal\(5,2\) wanted=decimal\(9,3\)"),
        ("n struct<x:array<int>>", "n struct<x:array<date>>", "field=n.x.element type=int wanted=date"),
        ("m map<string,int>", "m map<string,date>", "field=m.value type=int wanted=date"),
        ("n struct<x:int>", "n struct<X:int>", r"in other letters. field=n\.X"),
        ("at date", "at timestamp", "field=at type=date wanted=timestamp"),
    ],
)
def test_an_impossible_evolution_of_json_is_refused_and_the_field_named(ours: str, wanted: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        evolved(Form("json", ours), Form("json", wanted))


def avro(*fields: Any, name: str = "Order") -> Form:
    return Form("avro", record(*fields, name=name), True)


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


@pytest.mark.parametrize(
    ("ours", "wanted", "says"),
    [
        (avro(("a", "int")), avro(("a", "string")), "field=a type=int wanted=string"),
        (avro(("a", "int")), avro(("a", "double")), "field=a type=int wanted=double"),
        (avro(("a", "string")), avro(("a", "bytes")), "field=a type=string wanted=bytes"),
        (avro(("a", decimal(5, 2))), avro(("a", decimal(5, 3))), "field=a type=decimal .5,2. wanted=decimal .5,3."),
        (
            avro(("a", {"type": "long", "logicalType": "timestamp-millis"})),
            avro(("a", {"type": "long", "logicalType": "timestamp-micros"})),
            "field=a type=timestamp-millis wanted=timestamp-micros",
        ),
        (avro(("a", "int")), avro(("a", "int"), name="Other"), "type=record Order wanted=record Other"),
        (avro(("a", "int")), avro(("a", ["int", "string"])), "field=a type=int wanted=string"),
        (avro(("a", "int")), avro(("a", "int"), ("A", "int")), "a field is named twice. fields=a,A"),
        (Form("avro", '"int"'), Form("avro", '"long"'), "bare Avro values cannot evolve"),
        (Form("avro", '"int"'), Form("avro", '"int"', True), "another format"),
        (Form("avro", '"int"', True), Form("json", "a int"), "another format. format=avro wanted=json"),
    ],
)
def test_an_impossible_evolution_of_avro_is_refused_and_the_field_named(ours: Form, wanted: Form, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        evolved(ours, wanted)


def test_a_form_that_has_all_of_another_is_itself() -> None:
    ours = avro(
        ("b", ["string", "null"], "x"), ("a", "long", 5), ("k", {"type": "enum", "name": "K", "symbols": ["A"]})
    )
    assert evolved(ours, ours) is ours
    assert evolved(ours, avro(("k", {"type": "enum", "name": "K", "symbols": ["A"]}), ("a", "int"))) is ours
    assert evolved(Form("avro", '"int"'), Form("avro", '{"type": "int"}')).schema == '"int"'


def test_a_default_has_the_first_type_of_a_union_even_of_an_added_one() -> None:
    made = evolved(avro(("a", "string", "x")), avro(("a", ["null", "string"]), ("b", ["int", "null"], 5)))
    fields = {field["name"]: (field["type"], field["default"]) for field in json.loads(made.schema)["fields"]}
    assert fields == {"a": (["string", "null"], "x"), "b": (["null", "int"], None)}


def test_a_type_that_is_added_to_a_union_follows_the_others_and_none_is_dropped() -> None:
    ours = avro(("a", ["null", "int", "string"]), ("d", ["string", "int"], "x"))
    made = evolved(ours, avro(("a", ["boolean", "string", "null"]), ("d", "int"), ("b", ["int", "string"])))
    fields = {field["name"]: field["type"] for field in json.loads(made.schema)["fields"]}
    assert fields == {
        "a": ["null", "int", "string", "boolean"],
        "d": ["string", "int"],
        "b": ["null", "int", "string"],
    }
    assert [field.name for field in made.kind().field("a").type] == ["member0", "member1", "member2"]
    assert evolved(ours, ours) is ours


def test_an_added_field_without_a_type_is_bytes() -> None:
    made = evolved(avro(("a", "int")), avro(("a", "long"), ("b", ["null", "Order"]), ("c", "null")))
    assert made.kind() == pa.struct([("a", pa.int64()), ("b", pa.binary()), ("c", pa.binary())])


def test_a_field_that_ours_knows_by_an_alias_is_no_new_one() -> None:
    ours = json.loads(record(("new", "long")))
    ours["fields"][0]["aliases"] = ["old"]
    form = Form("avro", json.dumps(ours), True)
    assert evolved(form, avro(("old", "int"))) is form


class Pairs:
    """Two schemas of one record, the second evolved from the first; and values of the first."""

    def __init__(self, seed: int) -> None:
        self._chance, self._names = random.Random(seed), 0

    def record(self, depth: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
        name = self._name()
        same: dict[str, Any] = {"name": self._name(), "type": "int"}
        ours, expected = [same], [same]
        for _ in range(self._chance.randrange(1, 5)):
            field, (old, new) = self._name(), self._kinds(depth)
            place = self._chance.random()
            if place < 0.8:
                ours.append({"name": field, "type": old})
            if place > 0.2:
                expected.append({"name": field, "type": new})
        self._chance.shuffle(expected)
        made: dict[str, Any] = {"type": "record", "name": name}
        return made | {"fields": ours}, made | {"fields": expected}

    def _kinds(self, depth: int) -> tuple[Any, Any]:
        choice, more = self._chance.randrange(12), depth < 3
        old: Any
        new: Any
        made: dict[str, Any]
        match choice:
            case 0 | 1:
                old, new = self._chance.choice(
                    [("int", "long"), ("long", "int"), ("float", "double"), ("double", "float")]
                )
            case 2:
                old, new = decimal(4, 2), decimal(self._chance.choice([4, 9]), 2)
            case 3:
                made = {"type": "enum", "name": self._name()}
                old, new = made | {"symbols": ["A", "B"]}, made | {"symbols": ["C", "B"]}
            case 4:
                old = new = {"type": "long", "logicalType": f"timestamp-{self._chance.choice(['millis', 'micros'])}"}
            case 5 | 6 if more:
                old, new = self.record(depth + 1)
            case 7 if more:
                inner = self._kinds(depth + 1)
                old, new = ({"type": "array", "items": each} for each in inner)
            case 8 if more:
                inner = self._kinds(depth + 1)
                old, new = ({"type": "map", "values": each} for each in inner)
            case 9:
                made = {"type": "fixed", "name": self._name(), "size": 3}
                old, new = made, made
            case _:
                old = new = self._chance.choice(["string", "bytes", "boolean"])
        return self._nullable(old), self._nullable(new)

    def _nullable(self, kind: Any) -> Any:
        if isinstance(kind, list) or self._chance.random() < 0.6:
            return kind
        return self._chance.choice([["null", kind], [kind, "null"]])

    def _name(self) -> str:
        self._names += 1
        return f"n{self._names}"

    def value(self, kind: Any) -> Any:
        chance = self._chance
        if isinstance(kind, list):
            one = chance.choice(kind)
            return None if one == "null" else self.value(one)
        if isinstance(kind, dict) and "logicalType" in kind:
            return (
                Decimal("-1.25")
                if kind["logicalType"] == "decimal"
                else datetime(2026, 1, chance.randrange(1, 9), tzinfo=UTC)
            )
        match kind if isinstance(kind, str) else kind["type"]:
            case "int":
                return chance.randrange(-(2**31), 2**31)
            case "long":
                return chance.randrange(-(2**63), 2**63)
            case "float" | "double":
                return chance.randrange(-99, 99) / 4
            case "string":
                return chance.choice(["", "é"])
            case "bytes" | "fixed":
                return b"abc"
            case "boolean":
                return chance.random() < 0.5
            case "enum":
                return chance.choice(kind["symbols"])
            case "array":
                return [self.value(kind["items"]) for _ in range(chance.randrange(3))]
            case "map":
                return {str(at): self.value(kind["values"]) for at in range(chance.randrange(3))}
        return {field["name"]: self.value(field["type"]) for field in kind["fields"]}


def aligned(value: Any, kind: pa.DataType) -> Any:
    """Return a value of an older type as a row of a newer one: missing fields are null."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_struct(kind):
        return {field.name: aligned(value.get(field.name), field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(key, aligned(each, kind.item_type)) for key, each in value]
    return [aligned(each, kind.value_type) for each in value]


@settings(max_examples=100)
@given(seed=st.integers(0, 2**32))
def test_earlier_values_are_read_by_the_evolved_form_as_by_their_own(seed: int) -> None:
    pairs = Pairs(seed)
    ours, expected = pairs.record()
    old, new = (Form("avro", json.dumps(each), True) for each in (ours, expected))
    values = [pairs.value(ours) for _ in range(5)]
    later = [pairs.value(expected) for _ in range(5)]
    made = evolved(old, new)
    assert evolved(made, new) is made
    assert evolved(made, old) is made
    by_old = read(old, old, values)
    assert [aligned(row, made.kind()) for row in by_old] == read(made, old, values)
    by_new, kind = read(new, new, later), new.kind()
    for mine, theirs in zip(read(made, new, later), by_new, strict=True):
        assert narrowed(mine, kind) == theirs


def narrowed(value: Any, kind: pa.DataType) -> Any:
    """Return the fields of a row that the type has, in their order."""
    return value if value is None or not pa.types.is_nested(kind) else aligned(value, kind)


def read(form: Form, writer: Form, values: list[Any]) -> list[Any]:
    """Read through a registry that has the writer's schema under one id."""
    _writer.cache_clear()
    with registry({7: (200, {"schema": writer.schema})}) as server:
        values_read = open_reader(form, RegistryAccess(server.url)).of(
            pa.array([written(writer.schema, value, 7) for value in values], pa.binary())
        )
    assert not any(values_read.corrupt.to_pylist())
    made: list[Any] = values_read.column.to_pylist()
    return made
