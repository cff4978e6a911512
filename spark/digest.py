"""The record digest (`log/record_digest.py`) as Spark sees the records: what ``tierstate digest --via spark`` prints.

Everything happens in the executors: records are shuffled by partition, sorted by offset within it, and hashed as they
stream by; the driver gets one row a range. Memory of a task: what Spark's sort takes (it spills to disk), and a batch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ..log.record_digest import RecordDigest
from ..state import errors
from ..state.errors import InvalidRequest, TierstateError
from .columns import HEADERS, PLAIN_COLUMNS
from .sessions import local_session

MOST_TASKS = 64
SORT = ("topic", "partition", "offset")
RESULT = "range int, count bigint, digest string"


@dataclass(frozen=True, slots=True, order=True)
class DigestRange:
    """Offsets ``[start, end)`` of a partition."""

    topic: str
    partition: int
    start: int
    end: int


def digest_via_spark(
    options: Mapping[str, str],
    ranges: Sequence[DigestRange],
    *,
    session: SparkSession | None = None,
    cores: int = 2,
) -> dict[DigestRange, tuple[int, str]]:
    """``range -> (record count, digest in hex)``; several ranges of one partition are read in one go.

    ``options``: of the source; without what says which offsets are read, which the ranges do. Without a ``session`` one
    is started for this call. Raises what reading does.
    """
    unique = sorted(set(ranges))
    if any(each.start < 0 or each.end < each.start for each in unique):
        raise InvalidRequest("a range begins at or before its end", ranges=unique)
    empty = RecordDigest()
    found = {each: (0, empty.hexdigest()) for each in unique}
    if not any(each.start < each.end for each in unique):
        return found
    with local_session("tierstate-digest", cores) if session is None else nullcontext(session) as spark:
        frame = spark.read.format("tierstate").options(**{**options, **_extent(unique)}).load()
        columns = [*PLAIN_COLUMNS, HEADERS]
        tasks = min(len({(each.topic, each.partition) for each in unique}), MOST_TASKS)
        by_offset = frame.select(columns).repartition(tasks, "topic", "partition").sortWithinPartitions(*SORT)
        try:
            rows = by_offset.mapInArrow(partial(digest_ranges, unique), RESULT).collect()
        except PySparkException as error:
            raise of_executor(error) from error
        for row in rows:
            found[unique[row["range"]]] = row["count"], row["digest"]
    return found


def of_executor(error: PySparkException) -> TierstateError:
    """Return the error of ours that ended a task: Spark brings it as text. Raises ``error`` where there is none."""
    named = re.search(r"tierstate(?:\.\w+)*\.(\w+): (.+)", str(error))
    if named is None:
        raise error
    kind = getattr(errors, named[1], errors.CorruptData)
    return errors.CorruptData(named[2]) if kind in (errors.LogGap, errors.OffsetOutOfRange) else kind(named[2])


def digest_ranges(ranges: Sequence[DigestRange], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In an executor: whole partitions, records in offset order -> a row for each range that has any.

    Raises InvalidRequest for an offset that comes twice: a digest of what nobody can have is no answer.
    """
    digests: dict[int, RecordDigest] = {}
    for batch in batches:
        for topic, partition, part in runs(batch):
            offsets = part.column("offset").to_numpy()
            for number, each in enumerate(ranges):
                if (each.topic, each.partition) == (topic, partition):
                    start, end = (int(at) for at in offsets.searchsorted((each.start, each.end)))
                    if start < end:
                        digests.setdefault(number, RecordDigest()).update_arrow(part.slice(start, end - start))
    numbers = sorted(digests)
    columns = [
        pa.array(numbers, pa.int32()),
        pa.array([digests[number].count for number in numbers], pa.int64()),
        pa.array([digests[number].hexdigest() for number in numbers], pa.string()),
    ]
    yield pa.RecordBatch.from_arrays(columns, names=["range", "count", "digest"])


def runs(batch: pa.RecordBatch) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """Slices of one partition each; the batch is sorted by topic and partition."""
    topics, partitions = batch.column("topic"), batch.column("partition")
    start = 0
    while start < batch.num_rows:
        topic, partition = topics[start].as_py(), partitions[start].as_py()
        same = pc.and_(pc.equal(topics, topic), pc.equal(partitions, partition))
        count = int(pc.sum(same).as_py())
        yield topic, partition, batch.slice(start, count)
        start += count


def _extent(ranges: Sequence[DigestRange]) -> dict[str, str]:
    """The options that read all ranges, each partition once."""
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for each in ranges:
        first, last = starts.setdefault(each.topic, {}), ends.setdefault(each.topic, {})
        number = str(each.partition)
        first[number] = min(each.start, first.get(number, each.start))
        last[number] = max(each.end, last.get(number, each.end))
    return {
        "assign": json.dumps({topic: sorted(map(int, numbers)) for topic, numbers in starts.items()}),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "includeHeaders": "true",
        "tierstate.lease": "0",  # who looks writes nothing
    }
