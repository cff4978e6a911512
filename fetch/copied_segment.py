"""A copied segment by its manifest alone, ours or Aiven's: no view, no broker. What `dump-log` reads.

Our manifest lists every aborted range. A foreign one has Kafka's transaction index, which tells only of aborts whose
marker lies in the segment itself; for transactions still open at its end the segments that follow in the bucket are
read, markers only, until each is decided. What then stays open is *undecided*: hidden under read_committed, and named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ..log.batch import BatchHeader, iter_batches
from ..log.decode import RecordBlock, decode_records
from ..log.isolation import OpenTransactions
from ..log.transaction_index import parse_transaction_index
from ..state.errors import InvalidRequest
from ..state.ids import TopicIdPartition
from ..state.offsets import Offset
from ..state.segment import AbortedRange
from ..storage.object_store import ObjectStore
from ..storage.segment.encryption import KeyUnwrapper
from ..storage.segment.keys import ObjectKeys, ObjectKind, base_of
from ..storage.segment.manifest import IndexKind
from ..storage.segment.reader import SegmentReader
from .local import ABORT, control_type

READ_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class CopiedSegment:
    """``undecided``: producer id to the first offset of its transaction that nobody here knows the end of."""

    key: str
    topic: str
    partition: TopicIdPartition
    reader: SegmentReader
    aborted: tuple[AbortedRange, ...]
    base_offset: Offset
    undecided: dict[int, Offset] = field(default_factory=dict)

    @property
    def decided_end(self) -> Offset | None:
        """Where undecided data begins; None when everything is decided."""
        return min(self.undecided.values(), default=None)

    def blocks(self, *, committed: bool) -> Iterator[RecordBlock]:
        """Every record, without those aborted or undecided when ``committed``. Raises CorruptData."""
        aborted = self.aborted if committed else None
        end = self.decided_end if committed else None
        for position, data in whole_batches(self.reader):
            yield from decode_records(data, source=self.key, position=position, aborted=aborted, end=end)

    def batches(self) -> Iterator[BatchHeader]:
        """Every batch header, control batches too."""
        for position, data in whole_batches(self.reader):
            yield from iter_batches(data, source=self.key, position=position)


def open_copied(store: ObjectStore, manifest_key: str, *, keys: KeyUnwrapper | None = None) -> CopiedSegment:
    """Raises ObjectNotFound, CorruptData, InvalidRequest (not a manifest's key; encrypted and no key ring given)."""
    prefix = "".join(part + "/" for part in manifest_key.split("/")[:-3])
    parsed = ObjectKeys(prefix).parse(manifest_key)
    if parsed is None or parsed.kind is not ObjectKind.MANIFEST:
        raise InvalidRequest("not the manifest of a copied segment (….rsm-manifest)", key=manifest_key)
    reader = SegmentReader.open(store, manifest_key, keys=keys)
    named = reader.manifest.metadata
    # without our metadata the name is all there is, and a prefix without "/" cannot be told from the topic
    topic = named.topic if named is not None else parsed.topic
    block = reader.manifest.tierstate
    if block is not None:
        return CopiedSegment(manifest_key, topic, parsed.partition, reader, block.aborted, parsed.base_offset)
    own = reader.indexes(IndexKind.TRANSACTION) or b""
    aborted = {entry.range for entry in parse_transaction_index(own, manifest_key)}
    alone = CopiedSegment(manifest_key, topic, parsed.partition, reader, (), parsed.base_offset)
    undecided = OpenTransactions.of(alone.batches()).producers
    for following in _following(store, manifest_key, reader, keys) if undecided else ():
        _decide(following, undecided, aborted)
        if not undecided:
            break
    return replace(alone, aborted=tuple(sorted(aborted)), undecided=undecided)


def whole_batches(reader: SegmentReader) -> Iterator[tuple[int, bytes]]:
    """(position, whole batches) of the plain log, about `READ_BYTES` at a time."""
    position, carried = 0, b""
    pieces: list[bytes] = []
    held = 0
    for piece in reader.read_log():
        pieces.append(piece)
        held += len(piece)
        if held < READ_BYTES:
            continue
        data = b"".join([carried, *pieces])
        end = _end_of_whole(data, position)
        if end:
            yield position, data[:end]
        position, carried, pieces, held = position + end, data[end:], [], 0
    data = b"".join([carried, *pieces])
    if data:  # a batch cut off at the end of the log is the decoder's to refuse
        yield position, data


def _end_of_whole(data: bytes, position: int) -> int:
    end = 0
    for batch in iter_batches(data, source="log", position=position, verify_crc=False, partial_tail_ok=True):
        end = batch.position - position + batch.size_bytes
    return end


def _decide(following: SegmentReader, undecided: dict[int, Offset], aborted: set[AbortedRange]) -> None:
    """Take out of ``undecided`` whoever this segment has the marker of."""
    for _, data in whole_batches(following):
        for batch in iter_batches(data, source="following segment"):
            if not batch.is_control or batch.producer_id not in undecided:
                continue
            first = undecided.pop(batch.producer_id)
            if control_type(data, batch) == ABORT:
                aborted.add(AbortedRange(batch.producer_id, first, Offset(batch.base_offset)))


def _following(
    store: ObjectStore, manifest_key: str, before: SegmentReader, keys: KeyUnwrapper | None
) -> Iterator[SegmentReader]:
    """The segments of this partition that come next in the bucket, as long as each begins where the last one ended."""
    folder, _, name = base_of(manifest_key).rpartition("/")
    end = before.manifest.metadata.end_offset if before.manifest.metadata is not None else None
    for info in store.list(f"{folder}/", start_after=f"{folder}/{name}{ObjectKind.MANIFEST}"):
        if not info.key.endswith(ObjectKind.MANIFEST) or end is None:
            continue
        reader = SegmentReader.open(store, info.key, keys=keys)
        found = reader.manifest.metadata
        if found is None or not found.start_offset <= end + 1 <= found.end_offset:
            continue
        end = found.end_offset
        yield reader
