"""One Parquet file after another: row groups in, a finished file on our own disk out, with what it holds."""

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
from .columns import CORRUPT, corrupt_in
from .encodings import writer_of

PIECE_BYTES = 1 << 20


class ParquetFile:
    """A file that is being made, without a name on disk: it goes with its process. Raises DiskFull."""

    def __init__(self, schema: pa.Schema, facts: dict[str, str]) -> None:
        self.records, self.corrupt, self.first_offset, self.last_offset = 0, 0, -1, -1
        self._earliest: int | None = None
        self._latest = 0
        self._digest = RecordDigest()
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="tierstate-export-")
        named = schema.with_metadata({f"tierstate.{name}": said for name, said in facts.items()})
        self._writer = writer_of(self._file, named)

    def add(self, records: pa.Table, rows: pa.Table) -> None:
        """A row group: the ``records`` as they were decoded, and the ``rows`` that are written of them."""
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
        """A row group, of which nothing is told: no digest, no first and last."""
        with _typed():
            self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))

    @property
    def times(self) -> tuple[TimestampMs, TimestampMs]:
        """The earliest and the latest."""
        return TimestampMs((self._earliest or 0) // 1000), TimestampMs(self._latest // 1000)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def finish(self) -> tuple[int, str]:
        """Bytes and SHA-256 of the whole file."""
        with _typed():
            self._writer.close()
            self._file.flush()
        sha, size = hashlib.sha256(), 0
        for piece in self.pieces():
            sha.update(piece)
            size += len(piece)
        return size, sha.hexdigest()

    def pieces(self) -> Iterator[bytes]:
        """The finished file, from its beginning."""
        self._file.seek(0)
        while piece := self._file.read(PIECE_BYTES):
            yield piece

    def close(self) -> None:
        """Gives its room back; idempotent."""
        if self._writer.is_open:
            with _typed():
                self._writer.close()
        self._file.close()


@contextmanager
def _typed() -> Iterator[None]:
    """What the disk says, as an error of ours."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise DiskFull("no room for a file of an export", folder=tempfile.gettempdir(), reason=reason) from error
