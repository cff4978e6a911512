"""Why `source.py` takes no filters: a source that does gives wrong answers. When this fails, Spark is fixed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, GreaterThanOrEqual, InputPartition

from tierstate.spark.batch import BatchReader

pytestmark = pytest.mark.spark
ALLOWED = "spark.sql.python.filterPushdown.enabled"


def test_ours_takes_none() -> None:
    assert BatchReader.pushFilters is DataSourceReader.pushFilters


@pytest.mark.slow
def test_a_filter_that_a_python_source_takes_stays_for_the_next_query(spark: SparkSession) -> None:
    spark.dataSource.register(source_that_takes_filters())
    spark.conf.set(ALLOWED, "true")
    try:
        numbers = spark.read.format("ten-numbers").load()
        assert (numbers.where("number >= 7").count(), numbers.count()) == (3, 3), "10 would be right: Spark is mended"
    finally:
        spark.conf.unset(ALLOWED)


def test_a_source_that_takes_filters_cannot_be_read_with_sparks_own_settings(spark: SparkSession) -> None:
    spark.dataSource.register(source_that_takes_filters())
    with pytest.raises(PySparkException, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
        spark.read.format("ten-numbers").load().count()


def source_that_takes_filters() -> type[DataSource]:
    """Return a class made in a function: Spark then pickles it by value, and workers need not import the tests."""

    class TenNumbers(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ten-numbers"

        def schema(self) -> str:
            return "number int"

        def reader(self, schema: object) -> DataSourceReader:
            return Numbers()

    class Numbers(DataSourceReader):
        least = 0

        def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
            for each in filters:
                if isinstance(each, GreaterThanOrEqual):
                    self.least = each.value
                else:
                    yield each

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(0)]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            return ((number,) for number in range(self.least, 10))

    return TenNumbers
