"""Parquet files of an export or a table, made on the local disk from row groups.

Every reader of Parquet since 2021 knows the encodings: deltas for offsets and times, a dictionary for every other
column, zstd for all. If a dictionary reaches 1 MiB, the encoder writes the rest of the row group plain. So values that
never repeat cost no more than without a dictionary. Each column chunk has its smallest and largest value, so that
readers find offsets and times without reading the rest.

    pieces of either tier, of any size  ->  groups of `row_group_bytes`  ->  divided by date or partition  ->  files

Records are grouped by size, and each group is divided. The borders of groups depend on the records alone. So the
same records make the same files, from whatever tier, chunk or window they were read. Memory: one group, and the batch
that completed it. Both the writers and the checkers of files use this module.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import chain
from typing import IO, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..log.record_columns import as_column, constant, numbers
from ..state.errors import DiskFull

ENCODED = 2
"""The version of the encoding. Increase it whenever the same rows become other bytes."""
WRITER = f"pyarrow {pa.__version__}, {ENCODED}"
DELTAS = ("offset", "timestamp")
"""The columns of a record that are stored as deltas."""
LEVEL = 1
"""Compression level of zstd."""
PIECE_BYTES = 1 << 20


def writer_of(file: IO[bytes], schema: pa.Schema, deltas: tuple[str, ...] = DELTAS) -> pq.ParquetWriter:
    """Return a writer with the encodings above. ``deltas``: the columns that are stored as deltas."""
    return pq.ParquetWriter(
        file,
        schema,
        compression="zstd",
        compression_level=LEVEL,
        use_dictionary=[leaf for each in schema if each.name not in deltas for leaf in _leaves(each.name, each.type)],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in deltas if name in schema.names},
        write_page_index=True,
    )


def _leaves(name: str, kind: pa.DataType) -> list[str]:
    """Return the Parquet columns of one column of a schema."""
    if pa.types.is_struct(kind):
        return [leaf for each in kind for leaf in _leaves(f"{name}.{each.name}", each.type)]
    if pa.types.is_list(kind):
        return _leaves(f"{name}.list.element", kind.value_type)
    if pa.types.is_map(kind):
        return [f"{name}.key_value.key", *_leaves(f"{name}.key_value.value", kind.item_type)]
    return [name]


class ParquetFile:
    """A file that is being made. It has no name on disk, and is deleted with its process. Methods raise DiskFull."""

    def __init__(self, schema: pa.Schema, deltas: tuple[str, ...] = DELTAS) -> None:
        self._file = tempfile.TemporaryFile(prefix="tierstate-export-")
        self._writer = writer_of(self._file, schema, deltas)

    def add(self, rows: pa.Table) -> None:
        """Add a row group with these rows."""
        with disk_errors():
            self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))

    def finish(self) -> None:
        """Complete the file. Afterwards `pieces` has all of its bytes."""
        with disk_errors():
            self._writer.close()
            self._file.flush()

    def sha256(self) -> tuple[int, str]:
        """Return the size in bytes and the SHA-256 (hex) of the finished file."""
        self._file.seek(0)
        sha256 = hashlib.file_digest(self._file, "sha256").hexdigest()
        return self._file.tell(), sha256

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes of the finished file from its beginning, in pieces."""
        self._file.seek(0)
        while piece := self._file.read(PIECE_BYTES):
            yield piece

    def close(self) -> None:
        """Free its disk space; idempotent."""
        if self._writer.is_open:
            with disk_errors():
                self._writer.close()
        self._file.close()


F = TypeVar("F", bound=ParquetFile)
K = TypeVar("K")


def finished_files(
    files: Iterable[tuple[K, Iterator[pa.Table]]], begin: Callable[[], F]
) -> Generator[tuple[K, F], None, None]:
    """Write the row groups of one file after another, as `spill.divided` yields them. Yield each finished file; it is
    closed when the next one is requested. Without rows there is no file. ``begin`` opens a file.
    """
    for key, groups in files:
        if (first := next(groups, None)) is not None:
            with closing(begin()) as file:
                for group in chain([first], groups):
                    file.add(group)
                file.finish()
                yield key, file


@contextmanager
def disk_errors() -> Iterator[None]:
    """Convert errors of the disk into DiskFull."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise DiskFull("no room for a file of an export", folder=tempfile.gettempdir(), reason=reason) from error


RECORD_BYTES = 32
"""Bytes that count for a record in addition to its key, value and headers."""
HEADER_BYTES = 16
DAY_US = 86_400_000_000
_ZERO = constant(0, pa.int32())


def row_groups(batches: Iterable[pa.RecordBatch], group_bytes: int) -> Iterator[pa.Table]:
    """Yield rows with the schema of `record_columns.record_schema`, with headers, in groups of one chunk each.

    A group ends with the record that brings it to ``group_bytes``.
    """
    waiting: list[pa.RecordBatch] = []
    room = group_bytes
    for batch in batches:
        ends = np.cumsum(record_sizes(batch))
        at, counted = 0, 0
        while at < batch.num_rows:
            last = int(np.searchsorted(ends, counted + room))  # the record that fills the group is in it
            if last >= batch.num_rows:
                waiting.append(batch.slice(at))
                room -= int(ends[-1]) - counted
                break
            waiting.append(batch.slice(at, last + 1 - at))
            yield _joined(waiting)
            waiting, room, counted, at = [], group_bytes, int(ends[last]), last + 1
    if waiting:
        yield _joined(waiting)


def record_sizes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the uncompressed bytes of each record: int64 [n], every one above 0."""
    sizes = np.full(batch.num_rows, RECORD_BYTES, np.int64)
    for name in ("key", "value"):
        sizes += _lengths(batch.column(name))
    headers = batch.column("headers")
    if headers.null_count < len(headers):
        lists = numbers(headers.offsets, np.int32).astype(np.int64)
        values = headers.values
        each = HEADER_BYTES + _lengths(values.field("key")) + _lengths(values.field("value"))
        sums = np.concatenate(([0], np.cumsum(each)))
        sizes += sums[lists[1:]] - sums[lists[:-1]]
    return sizes


def _lengths(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return the bytes of each value; null is 0."""
    if not column.null_count:
        return numbers(pc.binary_length(column), np.int32).astype(np.int64)
    return numbers(pc.binary_length(column).fill_null(_ZERO), np.int32).astype(np.int64)


def _joined(batches: list[pa.RecordBatch]) -> pa.Table:
    """Return a table with one chunk per column, because an encoder ends its pages where chunks end."""
    return pa.Table.from_batches(batches).combine_chunks()


def by_date(table: pa.Table) -> list[tuple[int, pa.Table]]:
    """Return ``(day, records)`` for each day of a group, days ascending. Days are counted from 1970-01-01, UTC."""
    micros = numbers(table.column("timestamp").chunk(0), np.int64)
    days = micros // DAY_US
    first, last = int(days.min()), int(days.max())
    if first == last:
        return [(first, table)]
    return [(int(day), table.take(as_column(np.flatnonzero(days == day))).combine_chunks()) for day in np.unique(days)]
