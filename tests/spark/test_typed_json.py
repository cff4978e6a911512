"""``value.format=json``: a row is the one that `from_json` makes of the same bytes. More values are corrupt."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BinaryType, StructField, StructType

from tests.values.json_texts import DDL, MAPS, ORDERS, orders, texts
from tierstate.values.ddl import struct_of
from tierstate.values.json_values import JsonValues

pytestmark = pytest.mark.spark


def require_rows_of_from_json(spark: SparkSession, drawn: list[bytes | None], ddl: str) -> int:
    """Return how many values are not corrupt. Two texts are compared, so that NaN is NaN and -0.0 is not 0.0."""
    kind, values = struct_of(ddl, "value.schema"), pa.array(drawn, pa.binary())
    read = JsonValues(kind).of(values)
    parsed = pa.table({"v": values, "ours": read.column}).filter(pa.compute.invert(read.corrupt))
    frame = spark.createDataFrame(
        parsed, schema=StructType([StructField("v", BinaryType()), StructField("ours", from_arrow_type(kind))])
    )
    theirs = F.from_json(F.col("v").cast("string"), ddl, {"timeZone": "UTC", "mode": "PERMISSIVE"})
    forms = [(F.col("ours").cast("string"), theirs.cast("string")), (F.to_json("ours"), F.to_json(theirs))]
    rows = frame.select("v", *(each for form in forms for each in form)).collect()
    assert [(row[0], row[at], row[at + 1]) for row in rows for at in (1, 3) if row[at] != row[at + 1]] == []
    return len(rows)


@settings(max_examples=4, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_a_row_of_any_bytes_is_the_one_of_from_json(spark: SparkSession, seed: int) -> None:
    assert require_rows_of_from_json(spark, texts(seed, 3000), DDL + MAPS) > 100
    assert require_rows_of_from_json(spark, texts(seed, 3000), DDL) > 100


@settings(max_examples=2, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_rows_of_whole_objects_are_those_of_from_json(spark: SparkSession, seed: int) -> None:
    assert require_rows_of_from_json(spark, orders(seed), ORDERS) >= 1500
