"""The batch reader: planned once in the driver, read in the executors straight from the object store and the brokers.

The reader is pickled to every executor with all its options, credentials included: whoever may read a job's memory,
spill files or event log may read them. Memory of a task: what `fetch/split.py` says of a split, and one piece decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ..app.connection import BUCKET, Connection
from ..fetch.local import BrokerTier
from ..fetch.reader import records
from ..fetch.split import read_split
from ..runtime.clock import SystemClock
from .options import SourceOptions
from .planning import Group, plan_again, plan_groups

BATCH_BYTES = 2 * 1024 * 1024
"""Spark is fastest with batches of 1 to 2 MB (measured); larger ones are slower."""


class SplitGroup(InputPartition):
    """The work of one task."""

    def __init__(self, splits: Group) -> None:
        super().__init__(splits)
        self.splits = splits


class BatchReader(DataSourceReader):
    """Exactly the planned offsets, once each, also when Spark repeats a task."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """In the driver, once a query. Spark insists on a list; an empty one becomes one partition of nothing."""
        return [SplitGroup(group) for group in plan_groups(self._options, SystemClock())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In an executor: Arrow batches of exactly the declared schema."""
        if isinstance(partition, SplitGroup):
            yield from self._read(partition.splits)

    def _read(self, splits: Group) -> Iterator[pa.RecordBatch]:
        options, clock = self._options, SystemClock()
        again = partial(plan_again, options, clock)
        with Connection(options.settings, clock) as connection:
            store, keys = connection.store, connection.keys
            local = None if options.settings.view.source == BUCKET else BrokerTier(connection.broker)
            for split in splits:
                for piece in read_split(split, store, local, keys=keys, reroute=again):
                    for batch in records(piece, split.topic, split.partition, columns=options.columns):
                        yield from sliced(batch)


def sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The same records in batches of about `BATCH_BYTES`, without copying."""
    count = max(1, -(-batch.nbytes // BATCH_BYTES))
    rows = -(-batch.num_rows // count) or 1
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
