"""The most that a Python source can give to Spark: Arrow batches that are there already, over and over."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tierstate.spark.columns import chosen_columns, spark_schema


class PrebuiltSource(DataSource):
    """Options: ``batches``, a file of pickled record batches; ``rows`` in all; ``columns``; ``tasks``."""

    @classmethod
    def name(cls) -> str:
        return "prebuilt"

    def _columns(self) -> tuple[str, ...]:
        return chosen_columns(self.options.get("columns"), include_headers=False)

    def schema(self) -> StructType:
        return spark_schema(self._columns())

    def reader(self, schema: StructType) -> DataSourceReader:
        tasks, rows = int(self.options["tasks"]), int(self.options["rows"])
        return _Reader(self.options["batches"], self._columns(), [rows // tasks] * tasks)


class _Reader(DataSourceReader):
    def __init__(self, file: str, columns: tuple[str, ...], shares: list[int]) -> None:
        self._file, self._columns, self._shares = file, columns, shares

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(share) for share in self._shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batches, left = _batches(self._file, self._columns), int(partition.value)
        while left:
            for batch in batches:
                taken = batch.slice(0, left)
                yield taken
                left -= taken.num_rows
                if not left:
                    break


@lru_cache(4)
def _batches(file: str, columns: tuple[str, ...]) -> list[pa.RecordBatch]:
    """Load the batches once for each worker, which Spark uses again."""
    batches: list[pa.RecordBatch] = pickle.loads(Path(file).read_bytes())
    return [batch.select(columns) for batch in batches]
