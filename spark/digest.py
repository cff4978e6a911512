"""The record digest (`log/record_digest.py`) of the records that Spark reads, for ``tierstate digest --via spark``.

The executors do all work. Spark shuffles the records by partition and sorts them by offset; then they are hashed as a
stream. The driver gets one row for each range. A task needs the memory of Spark's sort, which spills to disk, and of
one batch.
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
    """Return ``range -> (record count, digest in hex)``. Several ranges of one partition are read together.

    ``options``: the source's options, except those that choose partitions and offsets, which ``ranges`` determine.
    Without ``session``, a local session with ``cores`` is started for this call. Raises InvalidRequest for an invalid
    range, and the errors of reading.
    """
    unique = sorted(set(ranges))
    if any(each.start < 0 or each.end < each.start for each in unique):
        raise InvalidRequest("a range begins at or before its end", ranges=unique)
    empty = RecordDigest()
    digests = {each: (0, empty.hexdigest()) for each in unique}
    if not any(each.start < each.end for each in unique):
        return digests
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
            digests[unique[row["range"]]] = row["count"], row["digest"]
    return digests


def of_executor(error: PySparkException) -> TierstateError:
    """Return the tierstate error that ended a task, parsed from Spark's text. Raises ``error`` if the text has none."""
    named = re.search(r"tierstate(?:\.\w+)*\.(\w+): (.+)", str(error))
    if named is None:
        raise error
    kind = getattr(errors, named[1], errors.CorruptData)
    return errors.CorruptData(named[2]) if kind in (errors.LogGap, errors.OffsetOutOfRange) else kind(named[2])


def digest_ranges(ranges: Sequence[DigestRange], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield one batch with a row for each range that has records. Runs in an executor, on complete partitions in order
    of offset.

    Raises InvalidRequest if an offset occurs twice: no log has such records, so their digest has no meaning.
    """
    digests: dict[int, RecordDigest] = {}
    for batch in batches:
        for topic, partition, part in runs(batch):
            offsets = part.column("offset").to_numpy()
            for number, range_ in enumerate(ranges):
                if (range_.topic, range_.partition) == (topic, partition):
                    start, end = (int(at) for at in offsets.searchsorted((range_.start, range_.end)))
                    if start < end:
                        digests.setdefault(number, RecordDigest()).update(part.slice(start, end - start))
    numbers = sorted(digests)
    columns = [
        pa.array(numbers, pa.int32()),
        pa.array([digests[number].count for number in numbers], pa.int64()),
        pa.array([digests[number].hexdigest() for number in numbers], pa.string()),
    ]
    yield pa.RecordBatch.from_arrays(columns, names=["range", "count", "digest"])


def runs(batch: pa.RecordBatch) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """Yield ``(topic, partition, records)`` for each partition of a batch that is sorted by topic and partition."""
    topics, partitions = batch.column("topic"), batch.column("partition")
    start = 0
    while start < batch.num_rows:
        topic, partition = topics[start].as_py(), partitions[start].as_py()
        same = pc.and_(pc.equal(topics, topic), pc.equal(partitions, partition))
        count = int(pc.sum(same).as_py())
        yield topic, partition, batch.slice(start, count)
        start += count


def _extent(ranges: Sequence[DigestRange]) -> dict[str, str]:
    """Return the options that read all ranges, each partition once."""
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for range_ in ranges:
        first, last = starts.setdefault(range_.topic, {}), ends.setdefault(range_.topic, {})
        number = str(range_.partition)
        first[number] = min(range_.start, first.get(number, range_.start))
        last[number] = max(range_.end, last.get(number, range_.end))
    return {
        "assign": json.dumps({topic: sorted(map(int, numbers)) for topic, numbers in starts.items()}),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "includeHeaders": "true",
        "tierstate.lease": "0",  # a digest only reads, and writes no lease
    }
