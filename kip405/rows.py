"""Where a view of the metadata topic keeps what it read: in memory, or in RocksDB, which is resumed after a restart.

Both are one ordered map of bytes. `fold.py` defines its keys.
"""

from __future__ import annotations

import shutil
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from ..follower.rocksdb import Database
from ..state.errors import CorruptData

FAMILY = "rows"
IDENTITY = b"identity"


class Rows(Protocol):
    """An ordered map of bytes with one writer."""

    def get(self, key: bytes) -> bytes | None: ...

    def under(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows whose keys begin so, in order of key."""
        ...

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Put and delete (None) rows in one atomic step."""
        ...

    def close(self) -> None: ...


class MemoryRows:
    """Implements `Rows` in a dictionary of this process."""

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes] = {}
        self._keys: list[bytes] | None = []
        """All keys in order; None after a change."""

    def get(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def under(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        if self._keys is None:
            self._keys = sorted(self._rows)
        keys = self._keys
        for at in range(bisect_left(keys, prefix), len(keys)):
            if not keys[at].startswith(prefix):
                return
            yield keys[at], self._rows[keys[at]]

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        for key, value in changes.items():
            if value is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = value
        self._keys = None

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class DiskRows:
    """Rows in a RocksDB database. Raises CorruptData, DiskFull, Unavailable."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, (FAMILY,), create=True)

    def get(self, key: bytes) -> bytes | None:
        return self._database.get(FAMILY, key)

    def under(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._database.scan(FAMILY, prefix)

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        batch = self._database.batch()
        for key, value in changes.items():
            if value is None:
                batch.delete(FAMILY, key)
            else:
                batch.put(FAMILY, key, value)
        self._database.write(batch)

    def close(self) -> None:
        self._database.close()


def open_rows(folder: Path | None, identity: str) -> Rows:
    """Return empty rows in memory, or those in ``folder``. Rows of another ``identity``, or damaged, are deleted first.

    Raises Unavailable if another process has the folder open, and DiskFull.
    """
    if folder is None:
        return MemoryRows()
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        rows = DiskRows(folder)
        if rows.get(IDENTITY) == identity.encode():
            return rows
        rows.close()
    except CorruptData:
        pass  # all of it can be read again
    shutil.rmtree(folder)
    rows = DiskRows(folder)
    rows.write({IDENTITY: identity.encode()})
    return rows
