"""Arrow reads JSON at once, and nothing that the strict decoder reads differently."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.values.json_texts import DDL, ORDERS, orders, texts
from tierstate.values.ddl import struct_of
from tierstate.values.json_values import MAX_DEPTH, JsonValues

FAST = "user bigint, text string, at timestamp, tags array<string>, nested struct<a:int>, d double"
PLAIN = [b'{"user":%d,"text":"a"}' % number for number in range(100)]


def values_of(ddl: str) -> JsonValues:
    return JsonValues(struct_of(ddl, "the schema"))


def binary(values: list[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


@pytest.mark.parametrize(
    "odd",
    [
        b'{"user":1}{"user":2}',
        b'{"user":1}}\n{"v":{"user":2}',
        b"null",
        b"",
        b"{}\0",
        b'{"user":1,"other":Inf}',
        b'{"user":1,"other":NaN}',
        b'{"user":1.0}',
        b'{"user":"1"}',
        b'{"user":9223372036854775808}',
        b'{"user":1',
        b'{"text":"\xff"}',
        b'{"text":5}',
        b'{"at":"2020"}',
        b'{"at":"2020-02-30T00:00:00Z"}',
        b'{"d":-0}',
        b'{"d":' + b"1" * 1000 + b"}",
        b'{"other":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}",
    ],
)
def test_a_value_that_arrow_might_read_otherwise_is_not_read_at_once(odd: bytes) -> None:
    values = values_of(FAST)
    assert values.at_once(binary([*PLAIN])) is not None
    assert values.at_once(binary([*PLAIN, odd])) is None


def test_decimals_are_read_at_once_where_they_fit() -> None:
    values = values_of("d decimal(5,2)")
    assert values.at_once(binary([b'{"d":999.99}'])) is not None
    assert values.at_once(binary([b'{"d":12345}'])) is None


def test_nulls_stay_nulls_when_a_batch_is_read_at_once() -> None:
    read = values_of("user bigint").at_once(binary([b'{"user":1}', None, b"{}"]))
    assert read is not None
    assert read.to_pylist() == [{"user": 1}, None, {"user": None}]


@pytest.mark.parametrize(
    ("ddl", "text", "row"),
    [
        ("d decimal(5,2)", b'{"d":"1.5"}', "1.50"),
        ("d decimal(5,2)", b'{"d":1.500}', "1.50"),
        ("d decimal(5,2)", b'{"d":1.505}', None),
        ("d decimal(5,2)", b'{"d":1000}', None),
        ("d decimal(5,2)", b'{"d":1e5000}', None),
        ("d decimal(5,2)", b'{"d":NaN}', None),
        ("d double", b'{"d":"1.5"}', None),
        ("d double", b'{"d":1e400}', None),
        ("d double", b'{"d":7}', "7.0"),
        ("d tinyint", b'{"d":128}', None),
        ("d string", b'{"d":7}', None),
        ("d string", b'{"d":"\\ud800"}', None),
        ("d timestamp", b'{"d":"2026-01-02T03:04:05+01:00"}', "2026-01-02 02:04:05+00:00"),
        ("d timestamp", b'{"d":"2026-01-02 03:04:05"}', "2026-01-02 03:04:05+00:00"),
        ("d timestamp", b'{"d":"2026-01-02"}', None),
        ("d timestamp", b'{"d":1767323045}', None),
        ("d timestamp_ntz", b'{"d":"2026-01-02T03:04:05.000006"}', "2026-01-02 03:04:05.000006"),
        ("d timestamp_ntz", b'{"d":"2026-01-02T03:04:05Z"}', None),
        ("d timestamp_ntz", b'{"d":"2026-01-02T03:04:05+01:00"}', None),
        ("d binary", b'{"d":"AP8="}', r"b'\x00\xff'"),
        ("d binary", b'{"d":"AP8"}', None),
        ("d binary", b'{"d":[0,255]}', None),
        ("d date", b'{"d":"2028-02-29"}', "2028-02-29"),
        ("d date", b'{"d":"2027-02-29"}', None),
        ("d bigint", b"{'d':1}", None),
        ("d bigint", b'{"d":1,"d":2}', "2"),
        ("d bigint", b'{"d":"1","d":2}', None),
        ("d bigint", b'{"d":1,"other":"\xff"}', None),
        ("d bigint", b'{"d":1,"other":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}", None),
    ],
)
@pytest.mark.parametrize("more", [[], PLAIN], ids=["alone", "in a batch"])
def test_a_value_of_another_type_is_corrupt_and_what_is_not_is_that_value(
    ddl: str, text: bytes, row: str | None, more: list[bytes]
) -> None:
    read = values_of(ddl).of(binary([*more, text]))
    assert read.corrupt[-1].as_py() == (row is None)
    assert row is None or str(read.column[-1].as_py()["d"]) == row


def test_a_field_may_have_any_name() -> None:
    """msgspec's decoder of a TypedDict loses names that are not ASCII."""
    read = values_of("`é` string, `of two words` int, `日` struct<`本`:int>")
    texts = binary(['{"é":"x","of two words":1,"日":{"本":2}}'.encode(), b'{"\\u00e9":"y"}'])
    rows = read.one_by_one(texts).column.to_pylist()
    assert rows == [
        {"é": "x", "of two words": 1, "日": {"本": 2}},
        {"é": "y", "of two words": None, "日": None},
    ]
    assert read.of(texts).column.to_pylist() == rows


@settings(max_examples=4)
@given(seed=st.integers(0, 2**32))
def test_what_arrow_reads_at_once_is_what_the_strict_decoder_reads(seed: int) -> None:
    """Each of hundreds alone, for a batch with one odd value is not read at once."""
    for ddl, drawn in ((DDL, texts(seed, 300)), (ORDERS, orders(seed)[::7])):
        values, compared = values_of(ddl), 0
        for value in drawn:
            column = binary([value])
            if (at_once := values.at_once(column)) is not None:
                assert at_once.equals(values.one_by_one(column).column), value
                compared += 1
        assert compared > 10


def test_a_batch_with_a_value_of_each_sort_is_what_the_strict_decoder_reads() -> None:
    values, column = values_of(ORDERS), binary(orders(1) + texts(1, 300) + orders(2))
    read, single = values.of(column), values.one_by_one(column)
    assert read.column.equals(single.column)
    assert read.corrupt.equals(single.corrupt)
