"""``format="json"``: exactly one object whose known fields have their types; any other value is marked as corrupt."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from tierstate.state.errors import InvalidRequest
from tierstate.values.form import Form
from tierstate.values.json_values import SOME, JsonValues
from tierstate.values.open import open_reader

DDL = "id bigint, tags array<string>, nested struct<a:int>, at timestamp"
PLAIN = [b'{"id":%d,"tags":["a"]}' % number for number in range(100)]


def read(values: list[bytes | None], form: Form | None = None) -> tuple[list[Any], list[bool]]:
    values_read = open_reader(form or Form("json", DDL), None).of(pa.array(values, pa.binary()))
    assert values_read.column.type == (form or Form("json", DDL)).kind()
    assert values_read.corrupt.null_count == 0
    return values_read.column.to_pylist(), values_read.corrupt.to_pylist()


def row(**fields: Any) -> dict[str, Any]:
    return {"id": None, "tags": None, "nested": None, "at": None} | fields


@pytest.mark.parametrize(
    "text",
    [
        b"", b" \n", b"null", b"7", b"[]", b'[{"id":1}]', b"{", b'{"id":"1"}', b'{"id":1.0}',
        b'{"id":9223372036854775808}',
        b'{"tags":"a"}', b'{"nested":{"a":"x"}}', b'{"nested":[]}', b'{"id":1} x', b'{"id":1}{"id":2}', b'{"id":1}\0',
        b'{"id":1},"w":{}', b'{"id":1}]],"w":[[{}', b'{"id":1} ] ],"w":[ [{}', b'{"id":1}],[{}', b']],"v":[[{}',
        b'{"id":1},{"id":2}', b'{"id":1}]]}\n{"v":[[{"id":2}', b"{}]", b'{"at":"12:30"}', b'{"at":"2020-02-30"}',
        b'{"x":' + b"[" * 600 + b"]" * 600 + b"}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", [0, 20, 700])
def test_a_value_that_is_not_one_object_is_corrupt_and_its_neighbours_are_not(text: bytes, before: int) -> None:
    around = [*(PLAIN * 8)[:before], text, None, *PLAIN[:5]]
    rows, corrupt = read(around)
    assert [at for at, each in enumerate(corrupt) if each] == [before]
    assert [at for at, each in enumerate(rows) if each is None] == [before, before + 1]
    assert rows[-1] == row(id=4, tags=["a"])


def test_an_object_is_a_row_without_its_unknown_fields() -> None:
    texts = [b"{}", b' {"id":1}\r\n', b'{"id":null,"x":[[{"a":{}}]],"y":"}]]"}', b'{"nested":{"a":2,"b":3}}', None]
    rows, corrupt = read(texts)
    assert rows == [row(), row(id=1), row(), row(nested={"a": 2}), None]
    assert not any(corrupt)


@pytest.mark.parametrize("pair", [b'{"id":1}{"id":2}', b'{"id":1},{"id":2}'])
def test_two_objects_in_one_value_never_stand_for_those_of_another(pair: bytes) -> None:
    empty = b""
    rows, corrupt = read([*PLAIN[:9], pair, empty, *PLAIN[:9]])
    assert (corrupt[9], corrupt[10], sum(corrupt)) == (True, True, 2)
    assert [each["id"] for each in rows if each is not None] == [*range(9), *range(9)]


def test_a_map_is_read_and_is_as_strict() -> None:
    rows, corrupt = read([b'{"m":{"a":1}}', b'{"m":{"a":"x"}}', None, b"{}"], Form("json", "m map<string,int>"))
    assert rows == [{"m": [("a", 1)]}, None, None, {"m": None}]
    assert corrupt == [False, True, False, False]


def test_values_in_parts_and_in_slices_are_those_that_are_read_one_by_one() -> None:
    chance = random.Random(3)
    odd: list[bytes | None] = [None, b"", b'{"id":"x"}', b'{"id":1},"w":{}', b"\xff", b'{"tags":[null]}', b'{"id":1}{}']
    values = [chance.choice(odd) if chance.random() < 0.02 else chance.choice(PLAIN) for _ in range(3000)]
    reader, column = JsonValues(Form("json", DDL).kind()), pa.array(values, pa.binary()).slice(7, 2500)
    whole, single = reader.of(column), reader.one_by_one(column)
    assert whole.column.equals(single.column)
    assert whole.corrupt.equals(single.corrupt)


class Counted(JsonValues):
    """``slow`` lists how many values went one by one, each time."""

    def __init__(self, ddl: str) -> None:
        super().__init__(Form("json", ddl).kind())
        self.slow: list[int] = []

    def one_by_one(self, values: pa.Array) -> Any:
        self.slow.append(len(values))
        return super().one_by_one(values)


@pytest.mark.parametrize(
    ("odd", "corrupt", "most"),
    [(b'{"id":1},"w":{}', 1, 0), (b'{"at":"2026-01-02T03:04:05+01:00"}', 0, SOME)],
    ids=["corrupt", "read by the strict decoder alone"],
)
def test_an_odd_value_slows_down_few_other_values(odd: bytes, corrupt: int, most: int) -> None:
    counted = Counted(DDL)
    values = counted.of(pa.array([*PLAIN * 20, odd, *PLAIN * 20], pa.binary()))
    assert values.corrupt.to_pylist().count(True) == corrupt
    assert sum(counted.slow) <= most


def test_text_is_utf_8_or_corrupt() -> None:
    form = Form("string")
    assert read(["é".encode(), b"", None], form) == (["é", "", None], [False] * 3)
    assert read([b"a", b"\xff", None], form) == (["a", None, None], [False, True, False])


@pytest.mark.parametrize("form", [Form("json", DDL), Form("avro", '"long"', True), Form("string")])
def test_a_form_is_the_same_after_it_was_written_down(form: Form) -> None:
    assert Form.of_json(form.as_json()) == form


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (("xml", "a int"), r"a format is one of json, avro, string. got='xml'"),
        (("json", " "), "json needs a schema"),
        (("string", "a int"), "a string has no schema. schema=a int"),
        (("json", "a int", True), "asked for Avro alone. format=json"),
    ],
)
def test_a_form_that_is_none_is_refused(said: tuple[Any, ...], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        Form(*said)


@pytest.mark.parametrize("said", [{}, {"format": "json", "schema": "a int", "registered": 1}, [], None])
def test_a_text_that_is_no_form_is_refused_when_it_is_read(said: Any) -> None:
    with pytest.raises(InvalidRequest, match="this is no form of values"):
        Form.of_json(said)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("id uuid", r"the schema: no type that can be read here\. type=uuid"),
        ("a array<struct<>>", "a struct without fields is no column"),
    ],
)
def test_a_schema_that_cannot_be_read_is_named(schema: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        Form("json", schema).kind()
