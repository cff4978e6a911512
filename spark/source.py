"""``spark.read.format("tierstate")``: both tiers of tiered topics, a drop-in for Spark's Kafka source."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from .columns import declared_columns, spark_schema
from .options import parse_options
from .plainly import plainly


class DefaultSource(DataSource):
    """Batch reads. Options: `options.py`; a stream is refused by Spark itself: there is no stream reader.

    Filters are not pushed down: Spark 4.3 fails or mixes up queries when a Python source accepts them.
    """

    @classmethod
    def name(cls) -> str:
        return "tierstate"

    def schema(self) -> StructType:
        """That of Spark's Kafka source, or of its ``columns``. Raises InvalidRequest for a wrong option."""
        with plainly:
            return spark_schema(parse_options(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """``schema``: ours, or a part of it that the user declared; only what it names is decoded."""
        with plainly:
            columns = declared_columns(schema, self.options.get("columns"))
            options = replace(parse_options(self.options), columns=columns)
        # Not at the top: every Spark session imports this module to learn the name, and most never read from here.
        from .batch import BatchReader

        return BatchReader(options)
