"""Tasks as those of a Spark job, for more than one machine can do. They read and write by themselves; only the tasks
and their outcomes go through Spark.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from .any_job import AnyJob, AnyRun, do

SCHEMA = "number int, said binary"
ARROW = pa.schema([("number", pa.int32()), ("said", pa.binary())])


def by_spark(session: Callable[[], SparkSession]) -> AnyRun:
    """Return what runs jobs in the session's executors; it yields outcomes when the last task has ended."""

    def run(jobs: Sequence[AnyJob]) -> Iterator[tuple[int, Any]]:
        if not jobs:
            return
        spark = session()
        rows = [(job.number, pickle.dumps(job)) for job in jobs]
        # one Spark task each: Spark repeats a whole task when an executor is lost
        frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, len(rows)), SCHEMA)
        for row in frame.mapInArrow(_do_all, SCHEMA).collect():
            yield row["number"], pickle.loads(row["said"])

    return run


def _do_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do jobs in an executor, and yield their outcomes."""
    for batch in batches:
        for packed in batch.column("said").to_pylist():
            number, outcome = do(pickle.loads(packed))
            yield pa.RecordBatch.from_arrays([[number], [pickle.dumps(outcome)]], schema=ARROW)
