"""``spark.read.format("tierstate")`` and ``spark.readStream``: both tiers of tiered topics, a drop-in for Spark's Kafka
source.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from ..state.errors import InvalidRequest
from .columns import declared_columns, spark_schema
from .options import SourceOptions, parse_for_any, parse_options, parse_stream_options
from .plainly import plainly
from .typed_values import column_types


class DefaultSource(DataSource):
    """Options: `option_table.py`.

    Filters are not pushed down: Spark 4.3 fails or mixes up queries when a Python source accepts them.
    """

    @classmethod
    def name(cls) -> str:
        return "tierstate"

    def schema(self) -> StructType:
        """Return the schema of Spark's Kafka source, or of ``columns``. Raises InvalidRequest for a wrong option."""
        with plainly:
            options = parse_for_any(self.options)
            return spark_schema(options.columns, column_types(options.typed))

    # The readers are not imported at the top: every Spark session imports this module for its name, and most never
    # read with it.

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader. ``schema``: ours, or the columns that the user declared; only these are decoded."""
        with plainly:
            options = self._declared(schema, parse_options(self.options))
        from .batch import BatchReader

        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return our reader, never PySpark's simple one, which reads in the driver."""
        with plainly:
            options = self._declared(schema, parse_stream_options(self.options))
        try:
            from .stream import StreamReader
        except ModuleNotFoundError as error:
            if error.name != "pyspark.sql.streaming.datasource":
                raise
            raise InvalidRequest("a stream needs PySpark 4.2 or newer; batches do not") from error
        return StreamReader(options)

    def _declared(self, schema: StructType, options: SourceOptions) -> SourceOptions:
        chosen = self.options.get("columns")
        return replace(options, columns=declared_columns(schema, chosen, column_types(options.typed)))
