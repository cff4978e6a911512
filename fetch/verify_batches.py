"""Level 3 of `verify`, in addition to the checksums: a manifest's chunk table compared with the real batches.

No checksum covers a manifest, and a point read begins where its chunk table says. A wrong offset there misleads reads,
and no other check would notice. Batches of transactions are passed on (`verify_markers.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from ..log.batch import CODEC, CONTROL, HEADER_BYTES, TRANSACTIONAL, BatchHeader, read_header
from ..log.record_parser import is_decodable
from ..state.errors import CorruptData
from ..state.object_keys import ObjectKind, object_key
from ..state.offsets import Offset
from ..storage.segment.manifest import SegmentManifest

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
