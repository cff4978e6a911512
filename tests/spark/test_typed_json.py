"""``value.format=json``: `value` is the result of `from_json` in PERMISSIVE mode, row by row, for any bytes."""

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
from tierstate.values.json_values import JsonValues

ORDERS = "id int, name string, at timestamp, tags array<string>, nested struct<a:int>, price double, f float"
MORE = ", cents decimal(10,2), due date, paid boolean"


def values_of(ddl: str) -> JsonValues:
    return JsonValues(struct_of(ddl, "value.schema"))


def binary(texts: list[bytes | None]) -> pa.Array:
    return pa.array(texts, pa.binary())


def differences(spark: SparkSession, texts: list[bytes | None], ddl: str) -> list[tuple[bytes | None, str, str]]:
    """Return the values for which we and Spark differ, and the text of both, so that NaN is NaN and -0.0 is not 0.0."""
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
    """Return hundreds that Arrow reads, and some that it must not read."""
    texts_drawn: list[bytes | None] = []
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
        texts_drawn.append(json.dumps(kept, ensure_ascii=number % 2 == 0, indent=None if number % 5 else 1).encode())
        if number % 75 == 74:
            texts_drawn.append(odd[number // 75])
    return texts_drawn


@pytest.mark.spark
@settings(max_examples=4, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_a_row_is_the_result_of_from_json_for_any_bytes(spark: SparkSession, seed: int) -> None:
    drawn = list(decided(texts(seed, 800), DDL + MAPS))
    assert len(drawn) > 750
    assert differences(spark, drawn, DDL + MAPS) == []
    assert differences(spark, drawn, DDL) == []


@pytest.mark.spark
@settings(max_examples=2, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_batches_that_are_read_at_once_are_what_from_json_makes_of_them(spark: SparkSession, seed: int) -> None:
    drawn = list(decided(orders(seed), ORDERS + MORE))
    assert differences(spark, drawn, ORDERS + MORE) == []
