"""The stream reader of ``spark.readStream.format("tierstate")``. Each micro-batch has exact start and end offsets.

Offsets have the form of Spark's Kafka source (`stream_offsets.py`), so that each source can continue the other's
checkpoint. Spark plans in a separate process for the lifetime of the query, and ends that process without notice. Spark
may never call `stop` or the last `commit`, so nothing depends on these calls.

    latestOffset(start, limit)  returns the end of the next batch; reports lost records before the batch is planned
    partitions(start, end)      plans a batch; a batch repeated from the checkpoint has the same offsets and records

That process keeps a view of the chosen partitions in memory from batch to batch, and the plan of one batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from ..runtime.clock import SystemClock
from .batch import BatchReader, tasks_of
from .options import SourceOptions
from .plainly import plainly

if TYPE_CHECKING:
    from .stream_offsets import Json
    from .stream_planning import StreamPlanner

ANY_NUMBER = 2**63 - 1


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark plans with one instance. Executors read with pickled copies, which import no planning code."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._batches = BatchReader(options)

    @cached_property
    def _planner(self) -> StreamPlanner:
        from .stream_planning import StreamPlanner

        return StreamPlanner(self._options, SystemClock())

    def initialOffset(self) -> Json:
        with plainly:
            return self._planner.initial()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        with plainly:
            return self._planner.following(start, limited=not isinstance(limit, ReadAllAvailable))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return ReadAllAvailable if no option limits a batch. Any other limit means all limits of the options."""
        limits = self._options.limits
        if limits.max_offsets is limits.max_bytes is limits.min_offsets is None:
            return ReadAllAvailable()
        return ReadMaxRows(limits.max_offsets or ANY_NUMBER)

    def reportLatestOffset(self) -> Json | None:
        """Return the ends of the log when the last batch was planned. Returns None before the first batch."""
        latest = self._planner.latest
        return None if latest is None else latest.to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        with plainly:
            self._planner.end_at_what_is_there()

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        with plainly:
            return tasks_of(self._planner.groups(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read as a batch query does. Runs in an executor."""
        return self._batches.read(partition)

    def stop(self) -> None:
        """Close the planner. It is harmless if Spark never calls this method or `commit`, which does nothing."""
        if "_planner" in self.__dict__:
            self._planner.close()
