"""``spark.read.format("tierstate")`` and ``spark.readStream``: both tiers of tiered topics, a drop-in for Spark's Kafka
source.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from ..state.errors import InvalidRequest
from .columns import spark_schema
from .options import SourceOptions, parse_for_any, parse_options, parse_stream_options


class DefaultSource(DataSource):
    """Options: `option_table.py`.

    Filters are not pushed down: Spark 4.3 fails or mixes up queries when a Python source accepts them.
    """

    @classmethod
    def name(cls) -> str:
        return "tierstate"

    def schema(self) -> StructType:
        """That of Spark's Kafka source, or of its ``columns``. Raises InvalidRequest for a wrong option."""
        return spark_schema(parse_for_any(self.options).columns)

    # The readers are not imported at the top: every Spark session imports this module to learn the name, and most never
    # read from here.

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options)
        _check_schema(schema, options)
        from .batch import BatchReader

        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Never the simple one of PySpark, which reads in the driver."""
        options = parse_stream_options(self.options)
        _check_schema(schema, options)
        try:
            from .stream import StreamReader
        except ModuleNotFoundError as error:
            if error.name != "pyspark.sql.streaming.datasource":
                raise
            raise InvalidRequest("a stream needs PySpark 4.2 or newer; batches do not") from error
        return StreamReader(options)


def _check_schema(schema: StructType, options: SourceOptions) -> None:
    own = spark_schema(options.columns)
    if schema != own:
        raise InvalidRequest(
            "this source has a schema of its own; leave .schema(…) out, or use the option columns",
            schema=own.simpleString(),
        )
