"""Level 3 of `verify`, in addition to the checksums: chunk table and aborted ranges compared with the real batches.

No checksum covers a manifest, and a point read begins where its chunk table says. A wrong offset there misleads reads,
and no other check would notice. Two objects list the aborted ranges: the manifest, which tierstate's readers use, and
Kafka's transaction index, which Kafka's readers of the same objects use. A broker's index has no checksum. Before
decision 0029, tierstate trusted it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

from ..log.batch import CODEC, CONTROL, HEADER_BYTES, TRANSACTIONAL, BatchHeader, read_header
from ..log.isolation import AbortFilter, MarkerCheck, contradiction
from ..log.record_parser import is_decodable
from ..log.transaction_index import TransactionIndexCheck, open_before
from ..state.errors import CorruptData
from ..state.object_keys import ObjectKind, object_key
from ..state.offsets import Offset
from ..state.segment import AbortedRange, RemoteSegment
from ..storage.segment.manifest import IndexKind, SegmentManifest
from ..storage.segment.reader import SegmentReader

_HEAD = struct.Struct(">qiibIh")
"""Base offset, bytes after these twelve, leader epoch, magic, CRC, attributes: Kafka's ``DefaultRecordBatch``."""
_PREFIX_BYTES = 12
_NOWHERE = 2**63
MARKER_BYTES = 4096
"""More bytes than any marker has: a control batch that claims more is passed on without its record."""
PLAIN_BYTES = 16 << 20
"""An uncompressed batch that claims more bytes is not checked: that limits the memory a damaged header can take."""


class ChunkTable:
    """The check of one log: `take` its plain bytes in order, then `check`. Memory: a batch, and an offset per chunk.

    ``of_transactions`` is called for each transactional batch and each complete marker, with its header, bytes, and the
    position of the bytes. ``undecodable``: base offset of the first batch that readers refuse, by the manifest or by
    its records.
    """

    def __init__(
        self,
        base_key: str,
        manifest: SegmentManifest,
        of_transactions: Callable[[BatchHeader, bytes, int], object] = lambda batch, data, position: None,
    ) -> None:
        self._base_key, self._manifest, self._of_transactions = base_key, manifest, of_transactions
        self.undecodable = None if manifest.tierstate is None else manifest.tierstate.undecodable
        self._firsts: dict[int, Offset] = {}
        self._tail = b""
        self._seen = self._next = 0

    def take(self, piece: bytes) -> None:
        """Check the next bytes. Never raises: only a checksum shows whether the bytes are right."""
        stop = self._seen + len(piece)
        data = self._tail + piece if self._tail else piece
        if self._next + HEADER_BYTES <= stop:
            chunk_bytes = self._manifest.chunks.chunk_bytes
            start, position = stop - len(data), self._next
            while position + HEADER_BYTES <= stop:
                base, length, _, magic, _, attributes = _HEAD.unpack_from(data, position - start)
                if magic != 2 or length < HEADER_BYTES - _PREFIX_BYTES:
                    position = _NOWHERE  # no batch: nothing can be found behind it
                    break
                looked_into = MARKER_BYTES if attributes & CONTROL else 0 if attributes & CODEC else PLAIN_BYTES
                if stop - position < _PREFIX_BYTES + length <= looked_into:
                    break  # the batch continues in the next piece
                if looked_into or attributes & TRANSACTIONAL:
                    self._look(data, start, position)
                if position // chunk_bytes not in self._firsts:
                    self._firsts[position // chunk_bytes] = Offset(base)
                position += _PREFIX_BYTES + length
            self._next = position
        # the header or batch that continues in the next piece
        self._tail = data[-(stop - self._next) :] if self._next < stop else b""
        self._seen = stop

    def _look(self, data: bytes, start: int, position: int) -> None:
        try:
            header = read_header(memoryview(data), position - start, "log", start)
        except CorruptData:
            return  # the checksum reports it
        if header.attributes & (TRANSACTIONAL | CONTROL):
            self._of_transactions(header, data, start)
        if self.undecodable is None and header.size_bytes <= PLAIN_BYTES:
            if not is_decodable(data, position - start, header):
                self.undecodable = Offset(header.base_offset)

    def check(self) -> None:
        """Raises CorruptData if the log is not complete batches from end to end, or if a chunk begins with another
        batch than the manifest says."""
        if self._next != self._seen:
            log_key = object_key(self._base_key, ObjectKind.LOG)
            raise CorruptData("the log is not whole batches", file=log_key, bytes=self._seen)
        block = self._manifest.tierstate
        for chunk, listed in enumerate(() if block is None else block.chunk_first_offsets):
            first = self._firsts.get(chunk)
            if first != listed:
                raise CorruptData(
                    "the manifest says that a chunk begins with another batch than it does",
                    file=object_key(self._base_key, ObjectKind.MANIFEST),
                    chunk=chunk,
                    says=listed if listed is not None else "none",
                    has=first if first is not None else "none",
                )


class CopiedMarkers:
    """The check of one segment: `add` its batches of transactions, in order, then `check`."""

    def __init__(
        self, segment: RemoteSegment, reader: SegmentReader, aborted: Sequence[AbortedRange] | None = None
    ) -> None:
        """Read the transaction index. ``aborted``: the ranges that readers hide; None: those of the manifest.

        Raises CorruptData, ObjectNotFound.
        """
        base, block = segment.offsets.start, reader.manifest.tierstate
        self._file = object_key(segment.object_key, ObjectKind.INDEXES)
        index = reader.indexes(IndexKind.TRANSACTION)
        log = object_key(segment.object_key, ObjectKind.LOG)
        self._index = TransactionIndexCheck(index, base, open_before(base, None, ""), self._file, log=log)
        if aborted is None:
            aborted = () if block is None else block.aborted
        self.manifest = MarkerCheck(AbortFilter(aborted), object_key(segment.object_key, ObjectKind.MANIFEST))
        self._wrong: CorruptData | None = None

    def add(self, batch: BatchHeader, data: bytes, position: int) -> None:
        """Check a batch, and keep the first error for `check`: only a checksum shows whether the bytes are right."""
        try:
            self._index.add(batch, data, position)
            self.manifest.add(batch, data, position)
        except CorruptData as error:
            self._wrong = self._wrong or error

    def check(self) -> None:
        """Raises CorruptData naming the object that contradicts the markers."""
        if self._wrong is not None:
            raise self._wrong
        difference = self._index.difference()
        if difference is not None:
            raise CorruptData("the transaction index contradicts the markers", file=self._file, difference=difference)


class AcrossSegments:
    """Transactions that end in a later segment than they began in: push the partition's segments in order.

    Memory: the producers whose transactions are open at a segment's end.
    """

    def __init__(self) -> None:
        self._next: Offset | None = None
        self._open: dict[int, list[tuple[RemoteSegment, Offset | None, Offset | None]]] = {}

    def push(self, segment: RemoteSegment, check: MarkerCheck | None) -> Iterator[tuple[RemoteSegment, str]]:
        """Yield earlier segments whose manifest contradicts a marker in ``segment``, and the contradiction.

        ``check`` None: ``segment`` was not read completely."""
        if check is None or segment.offsets.start != self._next:  # a marker may lie in between
            self._open.clear()
        self._next = Offset(segment.offsets.end + 1)
        if check is None:
            return
        for producer, (kind, marker) in check.first_markers.items():
            for before, shown, covered in self._open.pop(producer, ()):
                wrong = contradiction(kind, shown, covered)
                if wrong is not None:
                    yield before, f"{wrong}: producer={producer} marker={marker} segment={segment.segment_id}"
        for producer in check.shown.keys() | check.covered.keys():
            claim = segment, check.shown.get(producer), check.covered.get(producer)
            self._open.setdefault(producer, []).append(claim)
