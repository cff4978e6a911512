"""Rows that wait on the local disk until the file that they belong to is written."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

import pyarrow as pa

from .parquet import disk_errors

K = TypeVar("K", bound=Hashable)


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
                self._writer = pa.ipc.new_file(self._file, rows.schema)
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
