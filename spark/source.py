"""``spark.read.format("tierstate")``: both tiers of tiered topics, a drop-in for Spark's Kafka source."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from ..state.errors import InvalidRequest
from .columns import spark_schema
from .options import parse_options


class DefaultSource(DataSource):
    """Batch reads. Options: `options.py`; a stream is refused by Spark itself: there is no stream reader.

    Filters are not pushed down: Spark 4.3 fails or mixes up queries when a Python source accepts them.
    """

    @classmethod
    def name(cls) -> str:
        return "tierstate"

    def schema(self) -> StructType:
        """That of Spark's Kafka source, or of its ``columns``. Raises InvalidRequest for a wrong option."""
        return spark_schema(parse_options(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options)
        own = spark_schema(options.columns)
        if schema != own:
            raise InvalidRequest(
                "this source has a schema of its own; leave .schema(…) out, or use the option columns",
                schema=own.simpleString(),
            )
        # Not at the top: every Spark session imports this module to learn the name, and most never read from here.
        from .batch import BatchReader

        return BatchReader(options)
