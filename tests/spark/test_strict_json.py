"""A form's JSON is Spark's `from_json`, except that a value that is not one object is corrupt, never half a row."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BinaryType, BooleanType, StructField, StructType

from tests.spark.json_texts import DDL, MAPS, texts
from tests.spark.test_typed_json import MORE, ORDERS, orders
from tierstate.values.form import Form, Reader
from tierstate.values.json_rows import JsonRows
from tierstate.values.json_tokens import Undecided

CORRUPT = "_corrupt_record"
WHITESPACE = b" \t\n\r"
"""JSON's own whitespace (RFC 8259, section 2). A vertical tab behind an object is none: the value is corrupt."""


def by_spark(spark: SparkSession, values: list[bytes | None], ddl: str) -> list[tuple[bytes | None, bool, bool, bool]]:
    """Return each value, whether it is corrupt for us and for Spark, and whether the two rows are the same."""
    form = Form("json", ddl)
    arrow_column = form.reader(None).of(pa.array(values, pa.binary()))
    table = pa.table({"v": pa.array(values, pa.binary()), "ours": arrow_column.column, "corrupt": arrow_column.corrupt})
    kinds = [StructField("v", BinaryType()), StructField("ours", from_arrow_type(form.kind()))]
    frame = spark.createDataFrame(table, schema=StructType([*kinds, StructField("corrupt", BooleanType())]))
    options = {"timeZone": "UTC", "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    theirs = F.from_json(F.col("v").cast("string"), f"{ddl}, {CORRUPT} string", options)
    frame = frame.withColumn("theirs", theirs)
    row = frame["theirs"].dropFields(CORRUPT)
    same = frame["ours"].cast("string").eqNullSafe(row.cast("string")) & F.to_json("ours").eqNullSafe(F.to_json(row))
    rows = frame.select("v", "corrupt", frame["theirs"][CORRUPT].isNotNull(), same).collect()
    return [tuple(each) for each in rows]


def goes_on(reader: Reader, value: bytes) -> bool:
    """Return whether the value is an object with something behind it."""
    ends = [at + 1 for at, letter in enumerate(value) if letter == ord("}")]
    whole = reader.of(pa.array([value[:end] for end in ends], pa.binary()))
    return any(
        not corrupt and value[end:].strip(WHITESPACE)
        for end, corrupt in zip(ends, whole.corrupt.to_pylist(), strict=True)
    )


def undecided(ddl: str, value: bytes) -> bool:
    try:
        JsonRows(Form("json", ddl).kind()).strictly(value)
    except Undecided:
        return True
    except Exception:
        return False
    return False


def require_strict(spark: SparkSession, values: list[bytes | None], ddl: str) -> int:
    """Return how many values were corrupt for us alone."""
    reader, ours_alone = Form("json", ddl).reader(None), 0
    for value, ours, theirs, same in by_spark(spark, values, ddl):
        if value is None or not ours:
            assert not theirs, value
            assert same, value
        elif not theirs:
            ours_alone += 1
            empty = not value.strip() or value.strip().startswith(b"null")
            assert empty or undecided(ddl, value) or goes_on(reader, value), value
    return ours_alone


@pytest.mark.spark
@settings(max_examples=3, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
@example(seed=89)  # it has `{}` and a vertical tab
def test_a_row_is_what_from_json_makes_of_it_or_corrupt_and_never_less_strict(spark: SparkSession, seed: int) -> None:
    assert require_strict(spark, texts(seed, 800), DDL + MAPS) > 0
    require_strict(spark, texts(seed, 800), DDL)


@pytest.mark.spark
@settings(max_examples=2, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_batches_that_are_read_at_once_are_as_strict(spark: SparkSession, seed: int) -> None:
    require_strict(spark, orders(seed), ORDERS + MORE)
