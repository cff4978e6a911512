"""``value.schema``: Spark's DDL, read without a JVM as Spark reads it."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import _parse_datatype_string

from tierstate.values.ddl import struct_of

WHOLE = (
    "id bigint, name STRING, at timestamp, tags array<string>, nested struct<a:int,b: struct<c:double>>, "
    "`odd ``name` decimal(10,2), m map<string, array<int>>, d decimal, t tinyint, s smallint, f float, o boolean, "
    "dt date, i INTEGER, l long, r real, n numeric(5), array array<array<int>>"
)


@pytest.mark.spark
@pytest.mark.parametrize("text", [WHOLE, "struct<a:int, b:string>"])
def test_a_schema_is_what_spark_makes_of_it(spark: SparkSession, text: str) -> None:
    assert from_arrow_type(struct_of(text, "value.schema")) == _parse_datatype_string(text)
