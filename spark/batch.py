"""The batch reader. The driver plans the query once; executors read directly from the object store and the brokers.

Spark pickles the reader to every executor with all its options, credentials included. Anyone who can read a job's
memory, spill files or event log can read the credentials. A task needs the memory of a split (`fetch/split.py`), and of
one decoded piece.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from functools import cache

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ..fetch.planned_split import PlannedSplit, SplitWriter, unpacked
from ..runtime.clock import SystemClock
from ..state.errors import ObjectNotFound
from .options import SourceOptions
from .plainly import plainly

BATCH_BYTES = 2 * 1024 * 1024
"""The target size of an Arrow batch. Spark is fastest with 1 to 2 MB (measured), and slower with larger batches."""


class SplitGroup(InputPartition):
    """The splits of one task. ``value`` has the splits as `SplitWriter` packed them."""

    value: bytes

    @property
    def splits(self) -> tuple[PlannedSplit, ...]:
        """The splits, unpacked at each access. Raises InvalidRequest if the driver has another version of tierstate."""
        return unpacked(self.value)


def tasks_of(groups: Iterable[tuple[PlannedSplit, ...]]) -> list[InputPartition]:
    """Return one Spark partition for each group."""
    writer = SplitWriter()
    return [SplitGroup(writer.packed(group)) for group in groups]


class BatchReader(DataSourceReader):
    """Reads exactly the planned offsets. A repeated task reads the same offsets again.

    The driver imports only the planning code, and an executor only the reading code. Each import takes 0.5 s of CPU
    time.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Plan the query once, in the driver. Spark turns an empty list into one partition without data."""
        from .planning import plan_groups

        gc.disable()  # Spark plans in a separate process, which makes millions of objects without cycles and then ends
        try:
            with plainly:
                return tasks_of(plan_groups(self._options, SystemClock()))
        finally:
            gc.enable()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield Arrow batches of exactly the declared schema. Runs in an executor."""
        if isinstance(partition, SplitGroup):
            with plainly:
                yield from self._read(partition.splits)

    def _read(self, splits: tuple[PlannedSplit, ...]) -> Iterator[pa.RecordBatch]:
        from ..fetch.piece import records
        from ..fetch.split import read_split
        from .columns import TypedColumns

        tell_if_cold()
        access, clock = self._options.access, SystemClock()
        columns = TypedColumns(self._options.columns, self._options.typed)
        with access.reads(splits, clock) as reads:
            for split in splits:
                try:
                    for piece in read_split(split, reads.store, reads.local, keys=reads.keys, reroute=self._again):
                        for batch in records(piece, split.topic, split.partition, columns=columns.decoded):
                            yield from sliced(columns.of(batch))
                except ObjectNotFound as error:
                    raise self._missing(split, error) from error

    def _missing(self, split: PlannedSplit, error: ObjectNotFound) -> Exception:
        from .planning import missing

        return missing(self._options, SystemClock(), split, error)

    def _again(self, rest: PlannedSplit) -> Iterable[PlannedSplit]:
        from .planning import plan_again

        return plan_again(self._options, SystemClock(), rest)


@cache
def tell_if_cold() -> None:
    """Report on stderr, once per process, if this executor compiled kernels (seconds) instead of loading them."""
    from ..log import lazy_kernel, warm_kernels

    if lazy_kernel.compiled_here():
        kept = f"and keeps them in {lazy_kernel.FOLDER}" if lazy_kernel.FOLDER else "and can keep them nowhere"
        print(f"tierstate: this process compiled its kernels, {kept}; {warm_kernels.WAY_OUT}", file=sys.stderr)


def sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the same records in batches of about `BATCH_BYTES`, without copying."""
    count = max(1, -(-batch.nbytes // BATCH_BYTES))
    rows = -(-batch.num_rows // count) or 1
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
