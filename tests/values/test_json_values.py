"""JSON as `from_json` in PERMISSIVE mode: values that Arrow reads at once, that go row by row, or that need a JVM.

That both ways are `from_json`'s is shown against Spark itself, in tests/spark/test_typed_json.py.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from tierstate.values.ddl import struct_of
from tierstate.values.json_values import FEW, JsonValues
from tierstate.values.row_refused import RowRefused

FAST = "user bigint, text string, at timestamp, tags array<string>, nested struct<a:int>, d double"


def values_of(ddl: str) -> JsonValues:
    return JsonValues(struct_of(ddl, "the schema"))


def binary(texts: list[bytes | None]) -> pa.Array:
    return pa.array(texts, pa.binary())


PLAIN = [b'{"user":%d,"text":"a"}' % number for number in range(100)]


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
        b'{"user":1,"user":2}',
        b'{"user":1',
        b'{"text":"\xff"}',
        b'{"text":5}',
        b'{"at":"2020"}',
        b'{"at":"2020-02-30T00:00:00Z"}',
        b'{"d":-0}',
        b'{"d":' + b"1" * 1000 + b"}",
        b'{"other":' + b"[" * 600 + b"]" * 600 + b"}",
        b'{"' + b"n" * 50_001 + b'":1}',
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


def test_floats_are_read_at_once_below_what_jackson_rounds_twice() -> None:
    values = values_of("f float")
    assert values.at_once(binary([b'{"f":16777217}'])) is not None
    assert values.at_once(binary([b'{"f":9223372036854775000000}'])) is None


def test_nulls_stay_nulls_when_a_batch_is_read_at_once() -> None:
    read = values_of("user bigint").at_once(binary([b'{"user":1}', None, b"{}"]))
    assert read is not None
    assert read.to_pylist() == [{"user": 1}, None, {"user": None}]


class Counted(JsonValues):
    """``slow`` lists how many rows went one by one, each time."""

    def __init__(self, ddl: str) -> None:
        super().__init__(struct_of(ddl, "the schema"))
        self.slow: list[int] = []

    def one_by_one(self, values: pa.Array, first: int = 0) -> pa.Array:
        self.slow.append(len(values))
        return super().one_by_one(values, first)


def test_an_odd_value_sends_no_other_rows_the_slow_way() -> None:
    counted = Counted("user bigint")
    read = counted.of(binary([*PLAIN, b"{", *PLAIN]))
    assert read.to_pylist() == [{"user": number} for number in [*range(100), None, *range(100)]]
    assert sum(counted.slow) <= FEW


@pytest.mark.parametrize("odd", [b"{", b"null", b"\xff", b'{"at":"2020-01-01T00:00:00+00:00"}'])
def test_a_batch_whose_values_are_all_odd_is_not_tried_over_and_over(odd: bytes) -> None:
    counted, values = Counted("user bigint, at timestamp"), binary([odd] * 4096)
    read = counted.of(values)
    assert len(counted.slow) < 50
    assert read.equals(counted.one_by_one(values))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b'{"at":"01:02:03"}', "a time of day without a date"),
        (b'{"at":"2020-01-01T01:02:03 Europe/Berlin"}', "a time zone by its name"),
        (b'{"text":1e300}', "a large exponent"),
        (b'{"d":' + b"1" * 1001 + b"}", "a number of 1000 digits"),
        (b'{"other":' + b"[" * 501 + b"]" * 501 + b"}", "nested deeper than 500"),
    ],
)
def test_a_value_that_only_a_jvm_can_decide_is_refused_with_its_row(text: bytes, says: str) -> None:
    with pytest.raises(RowRefused, match=says) as raised:
        values_of(FAST).of(binary([*PLAIN, text]))
    assert raised.value.row == 100
