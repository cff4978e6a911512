"""The live set of one tier-state partition as a file: a RocksDB table (SST) that a view ingests unread.

The layout of the ``live`` family (`rocksdb_view.py`): tier-state partition (uint32) ‖ key → position (int64) ‖ value.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..state.offsets import Position
from ..state.view import Entry
from .rocksdb import Database, write_table

_PARTITION = struct.Struct(">I")
_POSITION = struct.Struct(">q")


def write_live_table(path: Path, tier_partition: int, entries: Iterable[Entry]) -> None:
    """Write a table, or an empty file for an empty live set. ``entries`` must be in order of key.

    Raises DiskFull, Unavailable, and the errors of ``entries``.
    """
    prefix = _PARTITION.pack(tier_partition)
    rows = ((prefix + each.key.encode(), _POSITION.pack(each.position) + (each.value or b"")) for each in entries)
    first = next(rows, None)
    if first is None:
        path.touch()
        return
    write_table(path, itertools.chain((first,), rows))


def read_live_table(path: Path, scratch: Path) -> Iterator[Entry]:
    """Yield the entries of a file of `write_live_table`, in order of key.

    Creates a database in the folder ``scratch``, because only a database can read a table. Raises CorruptData before
    the first entry if the file is not a table.
    """
    if path.stat().st_size == 0:
        return
    database = Database(scratch, ("live",), create=True)
    try:
        database.ingest("live", path)
        for key, value in database.scan("live", b""):
            yield Entry(key[4:].decode(), Position(_POSITION.unpack_from(value)[0]), value[8:])
    finally:
        database.close()
