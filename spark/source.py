"""The data source of ``spark.read.format("tierstate")`` and ``spark.readStream``. It reads both tiers of topics, and is
a drop-in replacement for Spark's Kafka source.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from ..state.errors import InvalidRequest
from .columns import PLAIN_COLUMNS, column_types, declared_columns, spark_schema
from .options import SourceOptions, parse_for_any, parse_options, parse_stream_options
from .plainly import plainly

NO_OPTIONS = (
    "a query has no options of its table: Spark does not pass those of CREATE TABLE to a Python source; write them "
    "into the query or a view, as SELECT * FROM the_table WITH (subscribe='orders', …)"
)


class DefaultSource(DataSource):
    """The data source ``tierstate``. Its options are in `option_table.py`.

    Filters are not pushed down: Spark 4.3 fails or mixes up queries if a Python source accepts filters.
    """

    @classmethod
    def name(cls) -> str:
        return "tierstate"

    def schema(self) -> StructType:
        """Return the schema of the columns that the options choose. Raises InvalidRequest for a wrong option.

        For ``CREATE TABLE``, Spark passes properties of the table (``provider``, …), and options as ``option.…``.
        """
        with plainly:
            if any(name.startswith("option.") for name in self.options):
                raise InvalidRequest(NO_OPTIONS)
            if "provider" in self.options:
                return spark_schema(PLAIN_COLUMNS)
            options = parse_for_any(self.options)
            return spark_schema(options.columns, column_types(options.typed))

    # Every Spark session imports this module to get the source's name, and most sessions never read from the source.
    # So the methods import the readers.

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader of the columns in ``schema``: those of `schema`, or those that the user declared."""
        with plainly:
            if not self.options:
                raise InvalidRequest(NO_OPTIONS)
            options = self._declared(schema, parse_options(self.options))
        from .batch import BatchReader

        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader that reads in the executors; PySpark's simple stream reader would read in the driver."""
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
