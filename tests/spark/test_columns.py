"""The columns that are read: all, those of the option ``columns``, or those that ``.schema(…)`` declares."""

from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from tierstate.spark.columns import PLAIN_COLUMNS, declared_columns, spark_schema
from tierstate.state.errors import InvalidRequest

VALUE, OFFSET = StructField("value", BinaryType()), StructField("offset", LongType())


def test_declared_columns_are_read_in_their_order() -> None:
    assert declared_columns(StructType([VALUE, OFFSET]), None) == ("value", "offset")
    assert declared_columns(StructType([OFFSET, VALUE]), " offset,VALUE ") == ("offset", "value")
    assert declared_columns(spark_schema(PLAIN_COLUMNS), None) == PLAIN_COLUMNS


def test_a_comment_on_a_column_is_not_another_type() -> None:
    assert declared_columns(StructType([StructField("value", BinaryType(), True, {"comment": "json"})]), None) == (
        "value",
    )


@pytest.mark.parametrize(
    ("fields", "chosen", "says"),
    [
        ([VALUE, StructField("price", LongType())], None, "no such column.* column='price'"),
        ([StructField("Value", BinaryType())], None, "no such column.* column='Value'"),
        ([OFFSET, StructField("value", LongType())], None, "column=value type=binary got=bigint"),
        ([OFFSET, StructField("value", BinaryType(), False)], None, "NOT NULL.* column=value"),
        ([VALUE, OFFSET, VALUE], None, "a column is named twice. column=value"),
        ([], None, "names no column"),
        ([VALUE, OFFSET], "offset,value", "disagree. schema=value,offset columns=offset,value"),
    ],
)
def test_anything_else_is_refused_and_the_column_named(
    fields: list[StructField], chosen: str | None, says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        declared_columns(StructType(fields), chosen)
