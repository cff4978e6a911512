"""One Parquet file: takes row groups, and gives a finished file on the local disk, with its counts and digests."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from ..log.record_digest import RecordDigest
from ..state.errors import DiskFull
from ..state.offsets import TimestampMs
from ..values.typed_column import CORRUPT
from .columns import corrupt_in
from .encodings import writer_of

PIECE_BYTES = 1 << 20


class ParquetFile:
    """A file that is being made, without a name on disk: it is deleted with its process. Raises DiskFull."""

    def __init__(self, schema: pa.Schema, facts: dict[str, str]) -> None:
        self.records, self.corrupt, self.first_offset, self.last_offset = 0, 0, -1, -1
        self._earliest: int | None = None
        self._latest = 0
        self._digest = RecordDigest()
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="tierstate-export-")
        with_facts = schema.with_metadata({f"tierstate.{name}": value for name, value in facts.items()})
        self._writer = writer_of(self._file, with_facts)

    def add(self, records: pa.Table, rows: pa.Table) -> None:
        """Add a row group: the ``records`` as they were decoded, and the ``rows`` to write for them."""
        offsets, times = records.column("offset").chunk(0), records.column("timestamp").chunk(0).cast(pa.int64())
        earliest, latest = (each.as_py() for each in pc.min_max(times).values())
        if self._earliest is None:
            self.first_offset, self._earliest, self._latest = offsets[0].as_py(), earliest, latest
        self._earliest, self._latest = min(self._earliest, earliest), max(self._latest, latest)
        self.last_offset = offsets[-1].as_py()
        self.records += records.num_rows
        self._digest.update(records)
        if CORRUPT in rows.column_names:
            self.corrupt += corrupt_in(rows.column(CORRUPT))
        self.write(rows)

    def write(self, rows: pa.Table) -> None:
        """Add a row group that does not count in the digest, the offsets or the times."""
        with _typed():
            self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))

    @property
    def times(self) -> tuple[TimestampMs, TimestampMs]:
        """Return the earliest and the latest timestamp."""
        return TimestampMs((self._earliest or 0) // 1000), TimestampMs(self._latest // 1000)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def finish(self) -> tuple[int, str]:
        """End the file. Return its bytes and SHA-256."""
        with _typed():
            self._writer.close()
            self._file.flush()
        sha, size = hashlib.sha256(), 0
        for piece in self.pieces():
            sha.update(piece)
            size += len(piece)
        return size, sha.hexdigest()

    def pieces(self) -> Iterator[bytes]:
        """Yield the finished file, from its beginning."""
        self._file.seek(0)
        while piece := self._file.read(PIECE_BYTES):
            yield piece

    def close(self) -> None:
        """Free its disk space; idempotent."""
        if self._writer.is_open:
            with _typed():
                self._writer.close()
        self._file.close()


@contextmanager
def _typed() -> Iterator[None]:
    """Raise errors of the disk as DiskFull."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise DiskFull("no room for a file of an export", folder=tempfile.gettempdir(), reason=reason) from error
