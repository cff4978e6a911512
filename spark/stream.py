"""``spark.readStream.format("tierstate")``: micro-batches of both tiers, each a batch with exact start and end offsets.

Offsets are those of Spark's Kafka source (`stream_offsets.py`): each source can continue the other's checkpoint. Spark
plans in a process of its own for as long as the query lives, and ends that process without notice: neither `stop` nor
the last `commit` is sure to be called, so nothing depends on them.

    latestOffset(start, limit)  the end of the next batch; reports what is lost before the batch is planned
    partitions(start, end)      also of a batch repeated from the checkpoint: the same offsets, so the same records

Memory of that process: a view of the chosen partitions, kept from batch to batch, and the plan of one batch.
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
    """Spark plans with one instance and reads with others, which are pickled and load no planning code."""

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
        """Spark passes one limit on, and there are four options: any limit but "all" stands for the options."""
        limits = self._options.limits
        if limits.max_offsets is limits.max_bytes is limits.min_offsets is None:
            return ReadAllAvailable()
        return ReadMaxRows(limits.max_offsets or ANY_NUMBER)

    def reportLatestOffset(self) -> Json | None:
        """Return the ends of the log when the last batch was planned; None before the first."""
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
        """Close the planner. Spark may never call this, nor `commit`, which does nothing: that is harmless."""
        if "_planner" in self.__dict__:
            self._planner.close()
