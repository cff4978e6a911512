"""A copied segment, read by its manifest alone (tierstate's or Aiven's), without view or broker: input of `dump-log`.

tierstate's manifest lists every aborted range, and this list is checked against the segment's markers. A foreign
manifest has no list, so the segment's markers are read and compared with Kafka's transaction index. For transactions
still open at its end, the markers of the next segments in the bucket are read until each transaction is decided. A
transaction that stays open is *undecided*: it is hidden under read_committed, and reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..log.batch import BatchHeader, iter_batches
from ..log.isolation import AbortFilter, MarkerCheck
from ..log.log_piece import LogPiece
from ..log.transaction_index import TransactionIndexCheck, open_before
from ..log.transactions import decide
from ..state.errors import InvalidRequest
from ..state.ids import TopicIdPartition
from ..state.object_keys import ObjectKeys, ObjectKind, base_of, object_key
from ..state.offsets import Offset
from ..state.segment import AbortedRange
from ..storage.object_store import ObjectReader
from ..storage.segment.encryption import KeyUnwrapper
from ..storage.segment.manifest import IndexKind
from ..storage.segment.reader import SegmentReader

READ_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class CopiedSegment:
    """``undecided``: by producer id, the first offset of a transaction whose marker is in no segment of the bucket.

    ``differences``: by object key, how its transaction index contradicts the markers.
    """

    key: str
    topic: str
    partition: TopicIdPartition
    reader: SegmentReader
    aborted: tuple[AbortedRange, ...]
    base_offset: Offset
    undecided: dict[int, Offset] = field(default_factory=dict)
    differences: dict[str, str] = field(default_factory=dict)

    @property
    def log_key(self) -> str:
        """Return the key of the object that has the records."""
        return object_key(base_of(self.key), ObjectKind.LOG)

    @property
    def decided_end(self) -> Offset | None:
        """Return the offset where undecided data begins, or None if every transaction is decided."""
        return min(self.undecided.values(), default=None)

    def pieces(self, *, committed: bool) -> Iterator[LogPiece]:
        """Yield all records, without aborted and undecided ones if ``committed``. Raises CorruptData."""
        aborted = self.aborted if committed else None
        end = self.decided_end if committed else None
        check = MarkerCheck(AbortFilter(self.aborted), self.log_key)
        for position, data in whole_batches(self.reader):
            for batch in iter_batches(data, source=self.log_key, position=position) if committed else ():
                check.add(batch, data, position)
            yield LogPiece(self.log_key, position, data, aborted, end)

    def batches(self) -> Iterator[BatchHeader]:
        """Yield every batch header, also of control batches."""
        for position, data in whole_batches(self.reader):
            yield from iter_batches(data, source=self.log_key, position=position)


def open_copied(store: ObjectReader, manifest_key: str, *, keys: KeyUnwrapper | None = None) -> CopiedSegment:
    """Open a segment. Raises ObjectNotFound, CorruptData, InvalidRequest (not a manifest's key; no key ring)."""
    prefix = "".join(part + "/" for part in manifest_key.split("/")[:-3])
    parsed = ObjectKeys(prefix).parse(manifest_key)
    if parsed is None or parsed.kind is not ObjectKind.MANIFEST:
        raise InvalidRequest("not the manifest of a copied segment (….rsm-manifest)", key=manifest_key)
    reader = SegmentReader.open(store, manifest_key, keys=keys).unproven()  # a dump shows what is there
    named = reader.manifest.metadata
    # without tierstate's metadata the topic is in the object name only, where a prefix without "/" is a part of it
    topic = named.topic if named is not None else parsed.topic
    block = reader.manifest.tierstate
    if block is not None:
        return CopiedSegment(manifest_key, topic, parsed.partition, reader, block.aborted, parsed.base_offset)
    check = TransactionIndexCheck(
        reader.indexes(IndexKind.TRANSACTION),
        parsed.base_offset,
        open_before(parsed.base_offset, None, ""),
        manifest_key,
        log=manifest_key,
    )
    for position, data in whole_batches(reader):
        for batch in iter_batches(data, source=manifest_key, position=position):
            check.add(batch, data, position)
    aborted, undecided = [each.range for each in check.aborted], check.open
    for following in _following(store, manifest_key, reader, keys) if undecided else ():
        aborted += decide(undecided, whole_batches(following), "following segment")
        if not undecided:
            break
    difference = check.difference()
    differences = {} if difference is None else {object_key(base_of(manifest_key), ObjectKind.INDEXES): difference}
    ranges = tuple(sorted(aborted))
    return CopiedSegment(
        manifest_key, topic, parsed.partition, reader, ranges, parsed.base_offset, undecided, differences
    )


def whole_batches(reader: SegmentReader) -> Iterator[tuple[int, bytes]]:
    """Yield (position, complete batches) of the plain log, about `READ_BYTES` at a time."""
    position, waiting = 0, bytearray()
    for piece in reader.read_log():
        waiting += piece
        if len(waiting) < READ_BYTES:
            continue
        data, end = bytes(waiting), 0
        for batch in iter_batches(data, source="log", position=position, verify_crc=False, partial_tail_ok=True):
            end = batch.position - position + batch.size_bytes
        if end:
            yield position, data[:end]
            position += end
            del waiting[:end]
    if waiting:  # the decoder refuses a batch that is cut off at the end of the log
        yield position, bytes(waiting)


def _following(
    store: ObjectReader, manifest_key: str, before: SegmentReader, keys: KeyUnwrapper | None
) -> Iterator[SegmentReader]:
    """Yield the next segments of this partition in the bucket, as long as each begins where the last one ended."""
    folder, _, name = base_of(manifest_key).rpartition("/")
    end = before.manifest.metadata.end_offset if before.manifest.metadata is not None else None
    for info in store.list(f"{folder}/", start_after=f"{folder}/{name}{ObjectKind.MANIFEST}"):
        if not info.key.endswith(ObjectKind.MANIFEST) or end is None:
            continue
        reader = SegmentReader.open(store, info.key, keys=keys)
        metadata = reader.manifest.metadata
        if metadata is None or not metadata.start_offset <= end + 1 <= metadata.end_offset:
            continue
        end = metadata.end_offset
        yield reader
