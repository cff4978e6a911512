"""Streaming queries that run until they have all records, and the records of each micro-batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.spark.conftest import rows_of
from tests.spark.tiers import Record

Batches = dict[int, list[Record]]
PATIENCE_S = 500
"""Every batch starts tasks, and each of them takes seconds on a busy machine."""


def run(
    spark: SparkSession,
    source: str,
    options: dict[str, str],
    checkpoint: Path,
    *,
    into: Batches | None = None,
    meanwhile: Callable[[int], None] = lambda number: None,
) -> Batches:
    """Run the query until it has all records; return them by batch id.

    ``meanwhile`` is called in every batch before its records are kept (in ``into``): its error fails the batch, which
    is not committed then.
    """
    batches: Batches = {} if into is None else into

    def keep(frame: DataFrame, number: int) -> None:
        meanwhile(number)
        batches[number] = rows_of(frame)

    frame = spark.readStream.format(source).options(**options).load()
    ends(frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint)))
    return batches


def ends(writer: DataStreamWriter) -> None:
    """Start the query and let it end with the present records. A query that does not end in time proves nothing."""
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(PATIENCE_S), f"the query did not end: {query.lastProgress}"
    finally:
        query.stop()


def records_of(batches: Batches) -> list[Record]:
    return sorted((record for batch in batches.values() for record in batch), key=lambda record: record[2:5])


def places_of(batches: Batches) -> list[tuple[int, int]]:
    """Return partition and offset of every record, in order; one that came twice is there twice."""
    return [(record[3], record[4]) for record in records_of(batches)]


def offsets_of(checkpoint: Path, batch: int) -> dict[str, Any]:
    """Return the end offsets of this batch, as the checkpoint has them."""
    offsets: dict[str, Any] = json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])
    return offsets
