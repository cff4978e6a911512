"""Divides rows into files, one after another. Rows wait on the local disk until their file is written.

    rows, in groups  ->  rows of the first file  ->  the file, at once
                     ->  rows of other files     ->  a spill  ->  the other files, one after another

So late records of hundreds of days open two files at a time, one of them the spill. Memory: two row groups.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from contextlib import closing
from itertools import chain
from typing import Generic, TypeVar

import pyarrow as pa

from .parquet import disk_errors

K = TypeVar("K", bound=Hashable)
OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
"""Rows are as large as the log before its compression."""


class Spill(Generic[K]):
    """Rows of one schema, by key. They are in a file without a name, which is deleted with its process.

    Memory: one batch, and 24 bytes for each batch in the file. Add all rows, then read. Methods raise DiskFull.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="tierstate-spill-")
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._reader: pa.ipc.RecordBatchFileReader | None = None
        self._numbers: dict[K, list[int]] = defaultdict(list)
        self._count = 0

    def add(self, key: K, rows: pa.Table) -> None:
        """Write rows behind the rows of this key."""
        with disk_errors():
            if self._writer is None:
                self._writer = pa.ipc.new_file(self._file, rows.schema, options=OPTIONS)
            for batch in rows.combine_chunks().to_batches():
                self._writer.write_batch(batch)
                self._numbers[key].append(self._count)
                self._count += 1

    def keys(self) -> list[K]:
        """Return the keys, in the order in which they came."""
        return list(self._numbers)

    def rows(self, key: K) -> Iterator[pa.Table]:
        """Yield the rows of a key, in the order in which they were added."""
        with disk_errors():
            if self._reader is None:
                assert self._writer is not None
                self._writer.close()
                self._file.seek(0)
                self._reader = pa.ipc.open_file(self._file)
        for number in self._numbers[key]:
            yield pa.Table.from_batches([self._reader.get_batch(number)])

    def close(self) -> None:
        """Free the disk space; idempotent."""
        self._file.close()


def divided(
    groups: Iterable[pa.Table], parts: Callable[[pa.Table], list[tuple[K, pa.Table]]], *, streams: bool = True
) -> Generator[tuple[K, Iterator[pa.Table]], None, None]:
    """Yield the key and the rows of each file. The rows must be read before the next file is requested.

    ``parts`` divides a group, which is not empty. ``streams``: the rows of the first file do not wait on the disk.
    """
    groups = iter(groups)
    begun = next(groups, None) if streams else None
    with closing(Spill[K]()) as spill:
        first = None if begun is None else parts(begun)[0][0]
        streamed = _streamed(groups if begun is None else chain([begun], groups), parts, spill, first)
        if first is not None:
            yield first, streamed
        deque(streamed, 0)  # spills all groups that were not read
        for key in spill.keys():
            yield key, spill.rows(key)


def _streamed(
    groups: Iterable[pa.Table], parts: Callable[[pa.Table], list[tuple[K, pa.Table]]], spill: Spill[K], first: K | None
) -> Iterator[pa.Table]:
    for group in groups:
        for key, rows in parts(group):
            if key == first:
                yield rows
            else:
                spill.add(key, rows)
