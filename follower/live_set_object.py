"""The live set of one tier-state partition as one object: a checkpoint, or the base of a cut archive.

A header (`envelope.py`) is followed by a RocksDB table (SST) of the ``live`` family of `rocksdb_view.py`, which a view
ingests unread (`docs/decisions/0010-checkpoints-are-tables.md`). RocksDB needs files, so the table is in a scratch
folder while it is written or read. Memory: one MiB, and the table's index while it is written. Disk: one table.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ..state.errors import CorruptData, DiskFull, InvalidRequest, Unavailable
from ..state.offsets import ByteRange, Position
from ..state.view import Anchor, Entry, ViewStore
from ..storage.object_store import MIB, ObjectReader, ObjectWriter
from .digests import SetDigest, add_entry
from .envelope import HEAD_BYTES, seal, unseal
from .object_names import PositionName, TierPlace
from .rocksdb import Database, write_table
from .rocksdb_view import RocksView, ViewIdentity

CHECKPOINT = "checkpoint"
BASE = "archive-base"
LAYOUT = "rocksdb-table-1"
BATCH_ENTRIES = 5_000


@dataclass(frozen=True, slots=True)
class LiveSetHeader:
    """``position``: that of the next record. ``epoch``: leader epoch of the record before it; -1 if unknown. ``as_of``
    (ms): the view's as-of (`as_of.py`); in a base, the append time of the newest record. ``holes``: in a base, the
    number of positions below it without a record in any piece. ``anchor_…``: anchor of the last record below the
    position; -1 and "" if unknown.
    """

    cluster_id: str
    topic_id: str
    partitions: int
    tier_partition: int
    position: Position
    epoch: int
    as_of: int
    live_set_digest: str
    entries: int
    holes: int
    layout: str
    body_bytes: int
    body_sha256: str
    history: int = 0
    anchor_position: int = -1
    anchor_sha256: str = ""

    @property
    def anchor(self) -> Anchor | None:
        return Anchor(Position(self.anchor_position), self.anchor_sha256) if self.anchor_position >= 0 else None


@dataclass(frozen=True, slots=True)
class Table:
    """A live set in a scratch file, ready to be put."""

    header: LiveSetHeader
    path: Path


@contextmanager
def scratch_folder(store: ViewStore | None) -> Iterator[Path]:
    """Yield a folder that is removed at the end, or after a kill together with its view. For a RocksDB view, it is in
    the view's folder, because RocksDB ingests files only from its own file system. Raises DiskFull, Unavailable.
    """
    near = store.path if isinstance(store, RocksView) else None
    try:
        with TemporaryDirectory(prefix="tierstate-", dir=near) as folder:
            yield Path(folder)
    except OSError as error:
        kind = DiskFull if error.errno in (27, 28, 122) else Unavailable  # EFBIG, ENOSPC, EDQUOT
        raise kind("scratch file cannot be written", path=near, reason=error.strerror) from error


def write_live_set(
    store: ViewStore,
    identity: ViewIdentity,
    tier_partition: int,
    folder: Path,
    check: Callable[[Entry], None] = lambda entry: None,
    holes: int = 0,
) -> Table:
    """Write one tier-state partition of a store as a table in ``folder``. The store must not change during the call.

    ``check`` is called with each entry, and raises for an entry that must not be kept.
    """
    digest = SetDigest()
    rows: Iterable[Entry] = (entry for _, entry in store.entries(tier_partition))
    if not isinstance(store, RocksView):  # a RocksView yields entries in order of key
        rows = sorted(rows, key=lambda entry: entry.key)

    def seen() -> Iterator[Entry]:
        for entry in rows:
            check(entry)
            add_entry(digest, tier_partition, entry)
            yield entry

    path = folder / "table"
    write_live_table(path, tier_partition, seen())
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    anchor = store.anchor(tier_partition)
    header = LiveSetHeader(
        identity.cluster_id,
        identity.topic_id,
        identity.partitions,
        tier_partition,
        store.position(tier_partition),
        store.epoch(tier_partition),
        store.as_of(tier_partition),
        digest.hexdigest(),
        digest.count,
        holes,
        LAYOUT,
        path.stat().st_size,
        sha256,
        identity.history,
        anchor.position if anchor else -1,
        anchor.sha256 if anchor else "",
    )
    return Table(header, path)


def put_live_set(objects: ObjectWriter, key: str, kind: str, table: Table) -> None:
    """Put the object atomically. Raises ObjectExists and the store's errors."""
    objects.put_stream(key, itertools.chain((seal(kind, table.header),), _pieces(table.path)))


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(MIB):
            yield piece


def read_header(
    objects: ObjectReader, name: PositionName, kind: str, place: TierPlace, identity: ViewIdentity | None
) -> tuple[LiveSetHeader, int]:
    """Return the header, and the offset of the body in bytes. If ``identity`` is None, any identity is accepted.

    Raises CorruptData if the header is damaged or does not match the object's name. Raises InvalidRequest if the header
    names another cluster, topic, mapping or layout.
    """
    data = objects.get_range(name.key, ByteRange(0, HEAD_BYTES))
    header, start = unseal(data, kind, LiveSetHeader, source=name.key)
    theirs = (header.cluster_id, header.topic_id, header.partitions)
    if identity is not None and theirs != (identity.cluster_id, identity.topic_id, identity.partitions):
        raise InvalidRequest("live set is of another cluster, topic or mapping", file=name.key, holds=theirs)
    if header.layout != LAYOUT:
        raise InvalidRequest("live set is in another layout", file=name.key, layout=header.layout)
    if (TierPlace(header.topic_id, header.tier_partition, header.history), header.position) != (place, name.position):
        raise CorruptData(
            "live set stands under another's name",
            file=name.key,
            position=name.position,
            is_=f"{header.topic_id}/{header.tier_partition}/{header.position} of history {header.history}",
        )
    return header, start


def check_body(objects: ObjectReader, key: str, header: LiveSetHeader, start: int) -> Iterator[bytes]:
    """Yield the body in pieces. Raises CorruptData, maybe only after the last piece, if any byte differs."""
    hashed = hashlib.sha256()
    if objects.head(key).size != start + header.body_bytes:
        raise CorruptData("live set has another size than its header says", file=key, position=start)
    if header.body_bytes:
        for piece in objects.stream_range(key, ByteRange(start, start + header.body_bytes)):
            hashed.update(piece)
            yield piece
    if hashed.hexdigest() != header.body_sha256:
        raise CorruptData("live set does not match its hash", file=key, position=start)


def fetch_table(objects: ObjectReader, key: str, header: LiveSetHeader, start: int, folder: Path) -> Table:
    """Download the body to a file in ``folder`` and verify every byte. Raises CorruptData."""
    path = folder / "table"
    with path.open("wb") as file:
        for piece in check_body(objects, key, header, start):
            file.write(piece)
    return Table(header, path)


def take_table(table: Table, store: ViewStore, folder: Path) -> None:
    """Load a checkpoint's table, which has no foreign keys, into a store without records of this tier-state partition.

    A RocksDB view ingests the file without reading it. Raises InvalidRequest if the store has records, or CorruptData.
    """
    header = table.header
    if isinstance(store, RocksView):
        at = header.position, header.epoch, header.as_of, header.anchor
        store.ingest(header.tier_partition, table.path, *at)
    else:
        apply_table(table, store, folder)


def apply_table(table: Table, store: ViewStore, folder: Path) -> None:
    """Load a table entry by entry, otherwise like `take_table`. The table may have foreign keys."""
    header = table.header
    number = header.tier_partition
    if store.position(number):
        raise InvalidRequest("only an empty view starts from a live set", tier_partition=number)
    entries = read_live_table(table.path, folder / "database")
    while batch := list(itertools.islice(entries, BATCH_ENTRIES)):
        store.apply(number, batch, Position(0))
    store.apply(number, (), header.position, header.epoch, anchor=header.anchor)
    store.mark_as_of(number, header.as_of)


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
