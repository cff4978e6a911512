"""``value.format=json``: `value` is what `from_json` makes of it in PERMISSIVE mode, row by row, whatever it is."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BinaryType, StructField, StructType

from tests.spark.json_texts import DDL, MAPS, texts
from tierstate.values.ddl import struct_of
from tierstate.values.json_rows import JsonRows
from tierstate.values.json_tokens import Undecided
from tierstate.values.json_values import FEW, JsonValues
from tierstate.values.row_refused import RowRefused

ORDERS = "id int, name string, at timestamp, tags array<string>, nested struct<a:int>, price double, f float"
MORE = ", cents decimal(10,2), due date, paid boolean"
FAST = "user bigint, text string, at timestamp, tags array<string>, nested struct<a:int>, d double"


def values_of(ddl: str) -> JsonValues:
    return JsonValues(struct_of(ddl, "value.schema"))


def binary(texts: list[bytes | None]) -> pa.Array:
    return pa.array(texts, pa.binary())


def differences(spark: SparkSession, texts: list[bytes | None], ddl: str) -> list[tuple[bytes | None, str, str]]:
    """Of ours from Spark's, the values in question; text of both, so that NaN is NaN and -0.0 is not 0.0."""
    kind = struct_of(ddl, "value.schema")
    table = pa.table({"v": binary(texts), "ours": values_of(ddl).of(binary(texts))})
    frame = spark.createDataFrame(
        table, schema=StructType([StructField("v", BinaryType()), StructField("ours", from_arrow_type(kind))])
    )
    theirs = F.from_json(F.col("v").cast("string"), ddl, {"timeZone": "UTC", "mode": "PERMISSIVE"})
    forms = [(F.col("ours").cast("string"), theirs.cast("string")), (F.to_json("ours"), F.to_json(theirs))]
    rows = frame.select("v", *(each for form in forms for each in form)).collect()
    return [(row[0], row[at], row[at + 1]) for row in rows for at in (1, 3) if row[at] != row[at + 1]]


def decided(texts: list[bytes | None], ddl: str) -> Iterator[bytes | None]:
    rows = JsonRows(struct_of(ddl, "value.schema"))
    for text in texts:
        try:
            rows.of(text)
        except Undecided:
            continue
        yield text


def orders(seed: int) -> list[bytes | None]:
    """Hundreds that Arrow reads, and now and then one that it must not."""
    found: list[bytes | None] = []
    odd = texts(seed, 20)
    for number in range(1500):
        order = {
            "id": number,
            "name": ['é"\n', "", None, "x" * (number % 40)][number % 4],
            "at": ["2026-01-01T00:00:00Z", "2026-02-28 23:59:59.123", None][number % 3],
            "tags": [[], ["a", None], None][number % 3],
            "nested": [{"a": number}, {}, None][number % 3],
            "price": [1.5, 0.1, 3, 1e300, None][number % 5],
            "f": [0.1, 7, None][number % 3],
            "cents": [1.5, 12, "3.25", None][number % 4],
            "due": ["2028-02-29", None][number % 2],
            "paid": number % 2 == 0,
            "unknown": [{"k": [1, 2]}, "x"],
        }
        kept = {name: value for at, (name, value) in enumerate(order.items()) if (number + at + seed) % 7}
        found.append(json.dumps(kept, ensure_ascii=number % 2 == 0, indent=None if number % 5 else 1).encode())
        if number % 75 == 74:
            found.append(odd[number // 75])
    return found


@pytest.mark.spark
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_whatever_the_bytes_are_a_row_is_what_from_json_makes_of_it(spark: SparkSession, seed: int) -> None:
    found = list(decided(texts(seed, 800), DDL + MAPS))
    assert len(found) > 750
    assert differences(spark, found, DDL + MAPS) == []
    assert differences(spark, found, DDL) == []


@pytest.mark.spark
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_batches_that_are_read_at_once_are_what_from_json_makes_of_them(spark: SparkSession, seed: int) -> None:
    found = list(decided(orders(seed), ORDERS + MORE))
    assert differences(spark, found, ORDERS + MORE) == []


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
    """``slow``: how many rows went one by one, each time."""

    def __init__(self, ddl: str) -> None:
        super().__init__(struct_of(ddl, "value.schema"))
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
def test_what_nobody_but_a_jvm_can_decide_is_refused_and_its_row_named(text: bytes, says: str) -> None:
    with pytest.raises(RowRefused, match=says) as raised:
        values_of(FAST).of(binary([*PLAIN, text]))
    assert raised.value.row == 100
