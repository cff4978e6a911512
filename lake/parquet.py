"""Parquet files of an export or a table, made on the local disk from row groups.

Every reader of Parquet since 2021 knows the encodings: deltas for offsets and times, a dictionary for every other
column, zstd for all. If a dictionary reaches 1 MiB, the encoder writes the rest of the row group plain. So values that
never repeat cost no more than without a dictionary. Each column chunk has its smallest and largest value, so that
readers find offsets and times without reading the rest.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import IO, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from ..state.errors import DiskFull
from .row_groups import RowGroup

ENCODED = 2
"""The version of the encoding. Increase it whenever the same rows become other bytes."""
WRITER = f"pyarrow {pa.__version__}, {ENCODED}"
DELTAS = {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"}
LEVEL = 1
"""Compression level of zstd."""
PIECE_BYTES = 1 << 20


def writer_of(file: IO[bytes], schema: pa.Schema) -> pq.ParquetWriter:
    """Return a writer with the encodings above."""
    return pq.ParquetWriter(
        file,
        schema,
        compression="zstd",
        compression_level=LEVEL,
        use_dictionary=[leaf for each in schema if each.name not in DELTAS for leaf in _leaves(each.name, each.type)],
        column_encoding={name: how for name, how in DELTAS.items() if name in schema.names},
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

    def __init__(self, schema: pa.Schema) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="tierstate-export-")
        self._writer = writer_of(self._file, schema)

    def write(self, rows: pa.Table) -> None:
        """Add a row group with these rows."""
        with _typed():
            self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))

    def finish(self) -> None:
        """Complete the file. Afterwards `pieces` has all of its bytes."""
        with _typed():
            self._writer.close()
            self._file.flush()

    def sha256(self) -> tuple[int, str]:
        """Return the size in bytes and the SHA-256 (hex) of the finished file."""
        sha, size = hashlib.sha256(), 0
        for piece in self.pieces():
            sha.update(piece)
            size += len(piece)
        return size, sha.hexdigest()

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes of the finished file from its beginning, in pieces."""
        self._file.seek(0)
        while piece := self._file.read(PIECE_BYTES):
            yield piece

    def close(self) -> None:
        """Free its disk space; idempotent."""
        if self._writer.is_open:
            with _typed():
                self._writer.close()
        self._file.close()


F = TypeVar("F", bound=ParquetFile)


def finished_files(
    groups: Iterable[RowGroup], begin: Callable[[], F], add: Callable[[F, pa.Table], None]
) -> Generator[tuple[str, F], None, None]:
    """Write row groups into files. Yield each finished file with its name; it is closed when the next one is requested.

    ``begin`` opens a file, and ``add`` adds records to it. Close the generator: that closes the files.
    """
    making: dict[str, F] = {}
    with ExitStack() as stack:
        for group in groups:
            if group.records is not None:
                if group.name not in making:
                    making[group.name] = stack.enter_context(closing(begin()))
                add(making[group.name], group.records)
                continue
            file = making.pop(group.name)
            file.finish()
            yield group.name, file
            file.close()


@contextmanager
def _typed() -> Iterator[None]:
    """Convert errors of the disk into DiskFull."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise DiskFull("no room for a file of an export", folder=tempfile.gettempdir(), reason=reason) from error
