"""RocksDB with typed errors: column families, write batches, point reads and scans. Only this file uses rocksdict.

This file works around two problems. At a damaged block, an iterator of rocksdict ends without an error (seen in
0.3.29), so every scan checks the iterator's status. After a failed write (a full disk), a database refuses all later
writes until it is reopened, so the next batch reopens it. A full disk also refuses that, so a read-only database, which
needs neither room nor RocksDB's lock, answers reads until the reopening succeeds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    DbClosedError,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    SstFileWriter,
)
from rocksdict import WriteBatch as RawBatch

from ..state.errors import CorruptData, DiskFull, TierstateError, Unavailable

R = TypeVar("R")
BLOOM_BITS = 10
MEMTABLE_BLOOM_RATIO = 0.01
"""Bloom filter's share of a family's 64 MiB memtable: 10 bits for 500,000 keys. Opening a view touches all of it."""
LOCK_FILE = "/LOCK"
INFO_LOGS = 4
"""Files of RocksDB's own log that are kept. Each opening begins one, and a full disk is met by many openings."""
_FULL = ("No space left", "File too large", "Disk quota exceeded")
_DAMAGED = ("Corruption", "No such file", "does not exist", "Invalid argument", "Not implemented", "missing")


class Batch:
    """Puts and deletes that `Database.write` applies atomically."""

    def __init__(self, families: dict[str, Any]) -> None:
        self.raw, self._families = RawBatch(raw_mode=True), families

    def put(self, family: str, key: bytes, value: bytes) -> None:
        self.raw.put(key, value, self._families[family])

    def delete(self, family: str, key: bytes) -> None:
        self.raw.delete(key, self._families[family])


class Database:
    """One RocksDB database in one folder. It has one writer; any thread may read.

    Every call raises CorruptData if the data on disk is damaged, DiskFull, and Unavailable for any other error.
    """

    def __init__(self, path: Path, families: Sequence[str], *, create: bool) -> None:
        """Raises Unavailable if another process has the database open, CorruptData if it is damaged or missing."""
        self.path, self._names = path, tuple(families)
        self._lock = threading.RLock()
        self._failed: TierstateError | None = None
        self._use(self._opened(create=create))

    def _opened(self, *, create: bool = False, read_only: bool = False) -> Any:
        options = Options(raw_mode=True)
        options.create_if_missing(create)
        options.create_missing_column_families(not read_only)
        options.set_atomic_flush(True)  # a database without its write-ahead log is older, but consistent
        options.set_keep_log_file_num(INFO_LOGS)
        access = AccessType.read_only() if read_only else AccessType.read_write()
        families = {name: _family() for name in self._names}
        try:
            return Rdict(str(self.path), options=options, column_families=families, access_type=access)
        except Exception as error:  # rocksdict raises a bare Exception
            if f"{LOCK_FILE}:" in str(error):
                if self._failed is not None:  # a scan that began before the failed write still holds the lock
                    raise self._failed from error
                raise Unavailable(
                    "another process has this view open: give each a state_dir of its own", path=self.path, reason=error
                ) from error
            raise self._refused("this folder is not a view, or it is damaged", error) from error

    def _use(self, database: Any, *, read_only: bool = False) -> None:
        self._db, self._read_only = database, read_only
        self._families = {name: database.get_column_family(name) for name in self._names}
        self._handles = {} if read_only else {name: database.get_column_family_handle(name) for name in self._names}

    def _refused(self, message: str, error: Exception) -> TierstateError:
        reason = str(error)
        if any(sign in reason for sign in _FULL):
            return DiskFull("the disk of the view has no room left", path=self.path, reason=reason)
        kind = CorruptData if any(sign in reason for sign in _DAMAGED) else Unavailable
        return kind(message, path=self.path, reason=reason)

    def batch(self) -> Batch:
        """Return an empty batch for `write`. Reopens the database if the last write failed."""
        with self._lock:
            if self._failed is not None:
                if not self._read_only:
                    self._replace(self._opened(read_only=True), read_only=True)
                self._replace(self._opened())
                self._failed = None
            return Batch(self._handles)

    def _replace(self, database: Any, *, read_only: bool = False) -> None:
        """Use ``database`` from now on, and close the former one. A read that meets the former one is repeated."""
        former = self._handles, (*self._families.values(), self._db)
        self._use(database, read_only=read_only)
        _close(*former)

    def write(self, batch: Batch) -> None:
        try:
            self._db.write(batch.raw)
        except DbClosedError as error:
            raise Unavailable("the view was closed", path=self.path) from error
        except Exception as error:  # rocksdict raises a bare Exception
            self._failed = self._refused("view cannot be written", error)
            raise self._failed from error

    def get(self, family: str, key: bytes) -> bytes | None:
        return self.get_all(family, [key])[0]

    def get_all(self, family: str, keys: list[bytes]) -> list[bytes | None]:
        """Return the values in order of ``keys``; None for a missing key."""
        try:
            values = self._read(family, lambda rows: rows.get(list(keys)))
        except Exception as error:
            raise self._refused("view cannot be read", error) from error
        return [None if each is None else bytes(each) for each in values or ()]

    def _read(self, family: str, read: Callable[[Any], R]) -> R:
        while True:
            families = self._families
            try:
                return read(families[family])
            except DbClosedError:
                if families is self._families:
                    raise

    def first_key(self, family: str, seek: bytes) -> bytes | None:
        """Return the first key at or after ``seek``, or None."""
        return next((key for key, _ in self._iterate(family, seek)), None)

    def scan(self, family: str, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield every key with this prefix and its value, in order of key, as of the beginning of the scan."""
        for key, value in self._iterate(family, prefix):
            if not key.startswith(prefix):
                return
            yield key, value

    def _iterate(self, family: str, seek: bytes) -> Iterator[tuple[bytes, bytes]]:
        try:
            iterator = self._read(family, lambda rows: rows.iter())
            iterator.seek(seek)
            while iterator.valid():
                yield iterator.key(), iterator.value()
                iterator.next()
            iterator.status()
        except Exception as error:
            raise self._refused("view cannot be read", error) from error

    def ingest(self, family: str, table: Path) -> None:
        """Add a file of `write_table` without reading it. RocksDB links the file, so the caller may remove it."""
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        try:
            self._families[family].ingest_external_file([str(table)], options)
        except Exception as error:
            raise self._refused("table cannot be taken into the view", error) from error

    def close(self) -> None:
        with self._lock:
            _close(self._handles, (*self._families.values(), self._db))


def _close(handles: dict[str, Any], databases: Iterable[Any]) -> None:
    """Close a database and its families. RocksDB keeps its lock while any of them, a handle or an iterator is left."""
    handles.clear()
    for database in databases:
        with suppress(Exception):  # if the last flush fails, the write-ahead log has the data
            database.close()


def write_table(path: Path, rows: Iterable[tuple[bytes, bytes]]) -> None:
    """Write a file for `Database.ingest`. ``rows``: at least one pair of key and value, in order of key.

    Memory: one block and the table's index, about 1/50 of the table. Raises DiskFull, Unavailable, and each
    TierstateError of ``rows``.
    """
    options = _family()
    options.set_compression_type(DBCompressionType.zstd())
    try:
        writer: Any = SstFileWriter(options)
        writer.open(str(path))
        for key, value in rows:
            writer[key] = value
        writer.finish()
    except TierstateError:
        raise
    except Exception as error:  # rocksdict raises a bare Exception
        full = any(sign in str(error) for sign in _FULL)
        raise (DiskFull if full else Unavailable)("table cannot be written", path=path, reason=error) from error


def _family() -> Any:
    """Return options with Bloom filters for tables and memtables, because most look-ups are for missing keys."""
    blocks = BlockBasedOptions()
    blocks.set_bloom_filter(BLOOM_BITS, False)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    options.set_memtable_prefix_bloom_ratio(MEMTABLE_BLOOM_RATIO)
    options.set_memtable_whole_key_filtering(True)
    return options
