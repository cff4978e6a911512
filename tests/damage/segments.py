"""Small copied segments in a folder store: three of one partition, and the objects that damage is made of.

The second segment is the damaged one. Records are numbered, so that each value names its offset and its log.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.fetch.two_tiers import Folder, FolderTier, OneTopic, TwoTiers
from tests.log.batches import TIME, Batch, marker, record
from tierstate.fetch.reader import LogReader
from tierstate.fetch.remote import RemoteTier
from tierstate.log.batch import TRANSACTIONAL
from tierstate.log.decode import decode_batches
from tierstate.runtime.clock import SystemClock
from tierstate.state.ids import TopicId, TopicIdPartition
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.offsets import Extent, Offset
from tierstate.state.routing import Isolation
from tierstate.state.segment import Compression, RemoteSegment
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.object_store import ObjectStore
from tierstate.storage.segment.cache import ChunkCache
from tierstate.storage.segment.keyring import KeyRing

KEYRING = Path(__file__).parents[1] / "data" / "aiven-kafka" / "keyring.toml"
KEYS = KeyRing.load(KEYRING)
TOPIC, TOPIC_ID = "t", TopicId.of(b"damaged-topic-id")
CHUNK_BYTES, SEGMENT, BATCH = 512, 40, 4
"""Bytes of a chunk; offsets of a segment, and of a batch of records."""
DAMAGED = 1
"""The number of the segment that is damaged."""
EPOCHS = ((3, 0), (5, 60))
"""Leader epochs, and the offset at which each begins: the second one within the damaged segment."""
ABORT, COMMIT = 0, 1
Row = tuple[int, int, bytes | None, bytes | None]
"""Offset, milliseconds, key, value."""


@dataclass(frozen=True, slots=True)
class Form:
    """The form of the segments. ``layout``: full (a record for each offset), transactions, or compacted.

    ``older``: as releases made them that wrote no checksums of chunks.
    """

    name: str
    layout: str = "full"
    compression: Compression = Compression.NONE
    encrypted: bool = False
    older: bool = False

    @property
    def as_it_is(self) -> bool:
        """Return whether the log object is the plain log."""
        return self.compression is Compression.NONE and not self.encrypted

    @property
    def isolation(self) -> Isolation:
        return Isolation.READ_COMMITTED


FORMS = (
    Form("plain"),
    Form("zstd", compression=Compression.ZSTD),
    Form("encrypted", encrypted=True),
    Form("transactions", "transactions"),
    Form("compacted", "compacted"),
)


def data_batch(base: int, log: int, epoch: int, *, producer: int = -1, deltas: tuple[int, ...] = (0, 1, 2, 3)) -> bytes:
    """Return a batch of records whose values name their log and offset."""
    records = [
        record(delta, b"k%04d" % (base + delta), b"log %d, offset %06d" % (log, base + delta) * 2, time=1000 * delta)
        for delta in deltas
    ]
    attributes = 0 if producer < 0 else TRANSACTIONAL
    time, latest = TIME + 1000 * base, TIME + 1000 * (base + deltas[-1])
    return Batch(
        base, records, attributes=attributes, producer=producer, time=time, max_time=latest, epoch=epoch, delta=3
    ).bytes


SCRIPTS = {
    "full": "PPPPPPPPPP",
    "compacted": "PPPPPP-P-P",
    "transactions": "DEPzDaPEfDdFF",
}
"""A segment, batch by batch: P of no transaction, - compacted away, D E F of producers 7 to 9. Markers: a z abort the
transaction of 7 and of 9, d f commit that of 7 and of 8. The last two batches' ends in the next segment."""
PRODUCERS = {"P": -1, "D": 7, "E": 8, "F": 9}
ENDS = {"a": (7, ABORT), "z": (9, ABORT), "d": (7, COMMIT), "f": (8, COMMIT)}
Entry = tuple[int, int, int, int]
"""An aborted transaction: producer, first offset, offset of its marker, last stable offset then."""


def make_segment(number: int, form: Form, log: int, epochs: tuple[tuple[int, int], ...]) -> tuple[bytes, list[Entry]]:
    """Return the plain log of one segment, and the transactions that are aborted in it."""
    at, batches, aborted = number * SEGMENT, list[bytes](), list[Entry]()
    began = {9: at - 2 * BATCH} if number else {}
    for step, kind in enumerate(SCRIPTS[form.layout]):
        epoch = next(epoch for epoch, start in reversed(epochs) if start <= at)
        if kind in ENDS:
            producer, end = ENDS[kind]
            first = began.pop(producer, None)
            if end == ABORT and first is not None:
                aborted.append((producer, first, at, min(began.values(), default=at + 1)))
            batches.append(marker(at, producer, end, epoch=epoch, time=TIME + 1000 * at))
            at += 1
            continue
        if kind in PRODUCERS:
            left = ((0, 1, 2, 3), (0, 3), (1, 2), (0, 1, 2))[step % 4] if form.layout == "compacted" else (0, 1, 2, 3)
            if kind != "P":
                began.setdefault(PRODUCERS[kind], at)
            batches.append(data_batch(at, log, epoch, producer=PRODUCERS[kind], deltas=left))
        at += BATCH
    return b"".join(batches), aborted


def make_folder(
    path: Path, form: Form, *, log: int = 0, epochs: tuple[tuple[int, int], ...] = EPOCHS, segments: int = 3
) -> Folder:
    """Make a broker's folder with this number of rolled segments, and an active one."""
    path.mkdir(parents=True)
    for number in range(segments + 1):
        batches, aborted = make_segment(number, form, log, epochs)
        base = number * SEGMENT
        files = {
            ".log": batches,
            ".index": b"".join(index_entries(batches, base)),
            ".timeindex": b"".join(time_entries(batches, base)),
            ".snapshot": struct.pack(">hIi", 1, 0, 0),
            ".txnindex": b"".join(struct.pack(">hqqqq", 0, *entry) for entry in aborted),
        }
        for suffix, data in files.items():
            if data:
                (path / f"{base:020d}{suffix}").write_bytes(data)
    lines = "".join(f"{epoch} {start}\n" for epoch, start in epochs)
    (path / "leader-epoch-checkpoint").write_text(f"0\n{len(epochs)}\n{lines}")
    return Folder(path)


def batch_positions(log: bytes) -> list[int]:
    """Return the position of each batch."""
    positions, at = list[int](), 0
    while at < len(log):
        positions.append(at)
        at += 12 + int.from_bytes(log[at + 8 : at + 12], "big")
    return positions


def index_entries(log: bytes, base: int) -> Iterator[bytes]:
    for at in batch_positions(log)[2::3]:
        yield struct.pack(">ii", int.from_bytes(log[at : at + 8], "big") - base, at)


def time_entries(log: bytes, base: int) -> Iterator[bytes]:
    for at in batch_positions(log)[2::3]:
        first, delta = int.from_bytes(log[at : at + 8], "big"), int.from_bytes(log[at + 23 : at + 27], "big")
        yield struct.pack(">qi", int.from_bytes(log[at + 35 : at + 43], "big"), first + delta - base)


Objects = dict[ObjectKind, bytes | None]
"""The three objects of one segment; None: the object is missing."""


@dataclass
class Segments:
    """Copied segments of one form. ``whole``: the objects of the damaged segment, as they were written.

    ``before``, ``after``: objects of the segments around it. ``elsewhere``: of another partition, with the same
    offsets. ``again``: of another attempt to copy the same segment. ``branch``: of a log that an election lost.
    """

    form: Form
    root: Path
    store: ObjectStore
    tiers: TwoTiers
    local: FolderTier
    folder: Folder
    segments: list[RemoteSegment]
    whole: Objects
    before: Objects
    after: Objects
    elsewhere: Objects
    again: Objects
    branch: Objects
    rows: list[Row]

    @property
    def segment(self) -> RemoteSegment:
        return self.segments[DAMAGED]

    @property
    def log(self) -> bytes:
        """Return the plain log of the damaged segment."""
        return self.folder.file(DAMAGED * SEGMENT, ".log")

    @property
    def extent(self) -> Extent:
        """Return the range of everything that the store has."""
        return Extent(Offset(0), Offset(len(self.segments) * SEGMENT))

    @property
    def keys(self) -> KeyRing | None:
        return KEYS if self.form.encrypted else None

    @contextmanager
    def reader(self) -> Iterator[LogReader]:
        """Yield a reader of both tiers that remembers nothing."""
        control: Any = OneTopic(TOPIC, TOPIC_ID)
        local: Any = self.local
        remote = RemoteTier(self.store, ChunkCache(1 << 20), SystemClock(), keys=self.keys)
        with closing(LogReader(self.tiers.view, control, local, remote, SystemClock())) as reader:
            yield reader

    def put(self, objects: Objects) -> None:
        """Write these objects to the store, in place of those of the damaged segment."""
        for kind, data in objects.items():
            path = self.root / object_key(self.segment.object_key, kind)
            path.unlink(missing_ok=True)
            if data is not None:
                path.write_bytes(data)

    def expected(self, extent: Extent, one_segment: bool = False) -> list[Row]:
        """Return the visible records of these offsets, or only those in the damaged segment."""
        within = self.segment.offsets if one_segment else range(extent.end)
        return [row for row in self.rows if extent.start <= row[0] < extent.end and Offset(row[0]) in within]


def objects_of(root: Path, segment: RemoteSegment) -> Objects:
    return {kind: (root / object_key(segment.object_key, kind)).read_bytes() for kind in ObjectKind}


@contextmanager
def made_segments(form: Form, path: Path) -> Iterator[Segments]:
    """Yield copied segments with the facts about them. Bytes are the same each time, except for wrapped data keys."""
    path.mkdir(parents=True)
    draw = random.Random(form.name)
    root = path / "store"
    store = DirectoryStore(root)

    def copied(name: str, into: ObjectStore, partition: int, first_id: int = 0, **folder: Any) -> Any:
        broker_folder = make_folder(path / name, form, **folder)
        tiers = TwoTiers(TopicIdPartition(TOPIC_ID, partition), TOPIC, into)
        tiers.compression, tiers.keys = form.compression, KEYS if form.encrypted else None
        tiers.random, tiers._segments = draw.randbytes, first_id
        return broker_folder, tiers, tiers.copy_all(broker_folder, chunk_bytes=CHUNK_BYTES, older=form.older)

    folder, tiers, segments = copied("log", store, 0)
    other_root = path / "others"
    others = DirectoryStore(other_root)
    copies = {
        "elsewhere": copied("elsewhere", others, 1, log=1),
        "again": copied("again", others, 0, first_id=100),
        "branch": copied("branch", others, 0, first_id=200, log=2, epochs=((2, 0),)),
    }
    local = FolderTier(folder, tiers.partition, TOPIC)
    local.local_start = len(segments) * SEGMENT
    batches = decode_batches(
        b"".join(folder.file(number * SEGMENT, ".log") for number in range(len(segments))),
        source="truth", topic=TOPIC, partition=0, aborted=folder.aborted(),
    )  # fmt: skip
    try:
        yield Segments(
            form, root, store, tiers, local, folder, segments,
            objects_of(root, segments[DAMAGED]), objects_of(root, segments[0]), objects_of(root, segments[2]),
            rows=rows_of(batches),
            **{name: objects_of(other_root, copy[2][DAMAGED]) for name, copy in copies.items()},
        )  # fmt: skip
    finally:
        tiers.view.close()
        for _, both, _ in copies.values():
            both.view.close()


def rows_of(batches: Any) -> list[Row]:
    rows = list[Row]()
    for batch in batches:
        times = batch.column("timestamp").cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
        columns = [batch.column(name).to_pylist() for name in ("offset", "key", "value")]
        rows.extend((offset, time, key, value) for time, offset, key, value in zip(times, *columns, strict=True))
    return rows
