"""Rows of records: headers as a map lose nothing, and columns describe themselves."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierstate.lake.columns import HEADER_MAP, Columns, header_map
from tierstate.log.record_columns import HEADERS
from tierstate.state.errors import InvalidRequest
from tierstate.values.form import Form

Pairs = list[tuple[str, bytes | None]]
headers = st.none() | st.lists(st.tuples(st.sampled_from(["", "a", "b", "ab"]), st.none() | st.binary(max_size=3)))


def mapped(pairs: Pairs | None) -> list[tuple[str, list[bytes | None]]] | None:
    if pairs is None:
        return None
    mapping: dict[str, list[bytes | None]] = {}
    for key, value in pairs:
        mapping.setdefault(key, []).append(value)
    return list(mapping.items())


@given(st.lists(headers, max_size=12), st.integers(0, 3))
def test_a_header_map_has_each_keys_values_in_their_order(rows: list[Pairs | None], start: int) -> None:
    pairs = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in rows]
    made = header_map(pa.array(pairs, HEADERS).slice(start))
    assert made.type == HEADER_MAP
    made.validate(full=True)
    assert made.to_pylist() == [mapped(row) for row in rows[start:]]


JSON = Form("json", "id bigint")


@pytest.mark.parametrize(
    "columns",
    [
        Columns(("offset",)),
        Columns(("key", "value", "headers"), Form("string"), JSON, "map"),
        Columns(("value",), value=Form("avro", '"long"', registered=True)),
    ],
)
def test_columns_are_the_same_after_json_and_in_another_process(columns: Columns) -> None:
    assert Columns.of_json(columns.as_json()) == columns
    assert pickle.loads(pickle.dumps(columns)) == columns


def test_corrupt_is_the_last_column_and_only_where_something_is_typed() -> None:
    assert Columns(("offset", "value")).schema().names == ["offset", "value"]
    assert Columns(("value", "offset"), value=JSON).schema().names == ["value", "offset", "_corrupt"]


def test_columns_that_no_file_can_have_are_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="not among those that are written") as refused:
        Columns(("offset",), value=JSON).schema()
    assert refused.value.facts == {"column": "value"}
    with pytest.raises(InvalidRequest, match="headers are a map"):
        Columns(("offset",), headers="map").schema()
    with pytest.raises(InvalidRequest, match="unknown column"):
        Columns(("offset", "valu")).schema()
