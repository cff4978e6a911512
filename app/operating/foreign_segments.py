"""Segments of another writer in another store, as a copy needs them: found, opened, and compared.

Aiven's manifest lacks what tierstate records: checksums, record counts, aborted ranges. They come from the bytes. So a
segment is read whole before anything of it is believed (`leader/checked_log.py` checks each batch).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from ...fetch.copied_segment import whole_batches
from ...kip405.records import SegmentRecord
from ...kip405.view import segment_of
from ...leader.recover_scan import DamagedManifest, ForeignManifest, Found, found_by
from ...log.batch import HEADER_BYTES, iter_batches
from ...log.partition import parse_epoch_checkpoint
from ...log.quiet_reader import QuietReader
from ...log.transaction_index import open_before
from ...log.transactions import decide
from ...rules.recovery import FoundSegment
from ...state.errors import CorruptData, DiskFull, NotTiered
from ...state.ids import BrokerId, TopicId
from ...state.object_keys import ObjectKind, not_own, object_key
from ...state.objects import ObjectInfo
from ...state.offsets import Offset, OffsetRange
from ...state.segment import AbortedRange, RemoteSegment
from ...storage.object_store import ObjectReader
from ...storage.segment.encryption import KeyUnwrapper
from ...storage.segment.manifest import IndexKind, SegmentManifest
from ...storage.segment.reader import SegmentReader, require_described

NO_TOPIC = TopicId.of(bytes(16))
"""Stands for the tier-state topic of a segment that another program wrote."""
PROVEN = ("last_record_offset", "record_count", "max_timestamp", "log_crc32c", "aborted")
"""Fields that a copy of a segment of tierstate keeps, in addition to `IDENTITY` without its object key."""


def adoptable(manifest: SegmentManifest, base: str, objects: Mapping[str, ObjectInfo]) -> Found:
    """Return what a recovery finds (`found_by`), and a segment of Aiven's plugin like one of tierstate."""
    finding, metadata = found_by(manifest, base, objects), manifest.metadata
    if not isinstance(finding, ForeignManifest):
        return finding
    if metadata is None:
        return DamagedManifest(finding.key, "it does not describe its segment")
    record = SegmentRecord(
        metadata.partition,
        metadata.topic,
        metadata.segment_id,
        OffsetRange(metadata.start_offset, metadata.end_offset),
        BrokerId(metadata.broker_id),
        metadata.max_timestamp,
        metadata.event_timestamp,
        metadata.leader_epochs,
        manifest.chunks.file_bytes,
        transaction_index_empty=False,
    )
    segment = segment_of(record, base, manifest.chunks.stored_bytes, metadata.event_timestamp)
    indexes = max(span.position + span.size for span in manifest.indexes.values() if span is not None)
    for kind, size in ((ObjectKind.LOG, manifest.chunks.stored_bytes), (ObjectKind.INDEXES, indexes)):
        info = objects.get(object_key(base, kind))
        if size != (0 if info is None else info.size):
            return DamagedManifest(finding.key, f"its {kind} object does not have {size} bytes")
    if (why := not_own(segment)) is not None:
        return DamagedManifest(finding.key, f"it describes another segment: {why}")
    return FoundSegment(segment, metadata.event_timestamp, Offset(0), "", NO_TOPIC)


class ForeignFiles:
    """Implements `SegmentFiles` on a copied segment. The plain log is spooled in a temporary file.

    ``later``: readers of the segments that follow in the log, for transactions that end there. Raises ObjectNotFound,
    CorruptData, DiskFull, InvalidRequest (no key opens it).
    """

    def __init__(
        self,
        store: ObjectReader,
        segment: RemoteSegment,
        keys: KeyUnwrapper | None,
        later: Callable[[], Iterable[SegmentReader]],
    ) -> None:
        self._store, self._segment, self._later = store, segment, later
        self.path = Path(object_key(segment.object_key, ObjectKind.LOG))
        reader = SegmentReader.open(store, segment.object_key, keys=keys)
        require_described(reader.manifest, segment)
        self._block = reader.manifest.tierstate
        self.log_bytes = reader.plain_bytes
        self.offset_index = reader.indexes(IndexKind.OFFSET)
        self.time_index = reader.indexes(IndexKind.TIME)
        self.producer_snapshot = reader.indexes(IndexKind.PRODUCER_SNAPSHOT) or b""
        self.transaction_index = reader.indexes(IndexKind.TRANSACTION) or None
        self.before = open_before(segment.offsets.start, None, str(self.path))
        epochs = reader.indexes(IndexKind.LEADER_EPOCHS) or b""
        self.lineage = parse_epoch_checkpoint(epochs, object_key(segment.object_key, ObjectKind.INDEXES))
        if self.lineage.within(segment.offsets) != segment.leader_epochs:
            raise CorruptData("the segment's leader epochs and its manifest contradict each other", file=self.path)
        try:
            with ExitStack() as opened:
                spool = opened.enter_context(tempfile.TemporaryFile())
                for piece in reader.read_log():
                    spool.write(piece)
                spool.flush()
                self.log = QuietReader(spool.fileno(), self.log_bytes, str(self.path))
                opened.callback(self.log.close)
                self._opened = opened.pop_all()
        except OSError as error:
            facts = {"folder": tempfile.gettempdir(), "bytes": self.log_bytes, "reason": error.strerror}
            raise DiskFull("no room for a segment's log: set TMPDIR to another folder", **facts) from error

    def head(self) -> bytes:
        return self.log.read(min(HEADER_BYTES, self.log_bytes), 0)

    def aborted_later(self, opened: Mapping[int, Offset]) -> tuple[AbortedRange, ...]:
        """Raises NotTiered if no segment decides one of the transactions. Else as the protocol says."""
        if self._block is not None:  # tierstate copies no segment before its transactions have ended
            return tuple(each for each in self._block.aborted if opened.get(each.producer_id) == each.first)
        left, aborted = dict(opened), list[AbortedRange]()
        for reader in self._later() if left else ():
            aborted += decide(left, whole_batches(reader), reader.log.key)
            if not left:
                break
        if left:
            producer, first = next(iter(left.items()))
            problem = "no segment shows how a transaction ended that is open at the segment's end"
            raise NotTiered(problem, file=self.path, producer_id=producer, first_offset=first)
        return tuple(aborted)

    def confirm(self) -> None:
        """Raise ObjectNotFound if the other writer deleted the segment."""
        self._store.head(object_key(self._segment.object_key, ObjectKind.MANIFEST))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._opened.close()


def require_equal(source: RemoteSegment, copy: RemoteSegment) -> None:
    """Raise CorruptData unless the copy describes this segment and has all of its bytes."""
    names: Iterable[str] = ("partition", "topic", "segment_id", "offsets", "leader_epochs", "log_bytes")
    if source.described:
        names = (*names, *PROVEN, "log_sha256")
    for name in names:
        own, expected = getattr(copy, name), getattr(source, name)
        if own != expected:
            facts = {"field": name, "read": own, "described": expected}
            raise CorruptData("the log is not what its manifest describes", object_key=source.object_key, **facts)
    last, end = copy.last_record_offset, source.offsets.end
    if not source.described and last != end:
        key = source.object_key
        raise CorruptData("the log does not reach the end of its segment", object_key=key, last_offset=last, end=end)


def batches_of(reader: SegmentReader, offsets: OffsetRange) -> dict[int, tuple[int, ...]]:
    """Return the batches with some of the offsets: last offset, CRC, leader epoch and bytes by base offset."""
    return {
        each.base_offset: (each.last_offset, each.crc, each.partition_leader_epoch, each.size_bytes)
        for position, data in whole_batches(reader)
        for each in iter_batches(data, source=reader.log.key, position=position)
        if each.last_offset >= offsets.start and each.base_offset <= offsets.end
    }
