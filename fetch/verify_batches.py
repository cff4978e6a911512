"""Level 3 of `verify`, beside the checksums: a manifest's chunk table against the batches that are really there.

No checksum is over a manifest, and a point read begins where its chunk table says: a wrong offset there misleads reads
and nothing else would tell. Batches of transactions are handed on (`verify_markers.py`).
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
"""More than any marker has: a control batch that claims more is handed on without its record."""
PLAIN_BYTES = 16 << 20
"""An uncompressed batch that claims more is not looked into: it bounds the memory that a damaged header can take."""


class ChunkTable:
    """Of one log: `take` its plain bytes in order, then `check`. Memory: one uncompressed batch and an offset a chunk.

    ``of_transactions`` is given each batch that is of one, and markers whole: header, bytes, position of the bytes.
    ``undecodable``: the base offset of the first batch that readers refuse, by the manifest or by its records.
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
        """Never raises: whether these are the right bytes at all is for their checksum to say."""
        stop = self._seen + len(piece)
        data = self._tail + piece if self._tail else piece
        if self._next + HEADER_BYTES <= stop:
            chunk_bytes = self._manifest.chunks.chunk_bytes
            start, position = stop - len(data), self._next
            while position + HEADER_BYTES <= stop:
                base, length, _, magic, _, attributes = _HEAD.unpack_from(data, position - start)
                if magic != 2 or length < HEADER_BYTES - _PREFIX_BYTES:
                    position = _NOWHERE  # no batch: nothing is to be found behind it
                    break
                looked_into = MARKER_BYTES if attributes & CONTROL else 0 if attributes & CODEC else PLAIN_BYTES
                if stop - position < _PREFIX_BYTES + length <= looked_into:
                    break  # the batch that the next piece goes on with
                if looked_into or attributes & TRANSACTIONAL:
                    self._look(data, start, position)
                if position // chunk_bytes not in self._firsts:
                    self._firsts[position // chunk_bytes] = Offset(base)
                position += _PREFIX_BYTES + length
            self._next = position
        # the header or batch that the next piece goes on with
        self._tail = data[-(stop - self._next) :] if self._next < stop else b""
        self._seen = stop

    def _look(self, data: bytes, start: int, position: int) -> None:
        try:
            header = read_header(memoryview(data), position - start, "log", start)
        except CorruptData:
            return  # its checksum says so
        if header.attributes & (TRANSACTIONAL | CONTROL):
            self._of_transactions(header, data, start)
        if self.undecodable is None and header.size_bytes <= PLAIN_BYTES:
            if not is_decodable(data, position - start, header):
                self.undecodable = Offset(header.base_offset)

    def check(self) -> None:
        """Raises CorruptData: for a log that is not batches from end to end; naming the manifest and the first chunk
        that begins otherwise than it says."""
        if self._next != self._seen:
            log_key = object_key(self._base_key, ObjectKind.LOG)
            raise CorruptData("the log is not whole batches", file=log_key, bytes=self._seen)
        block = self._manifest.tierstate
        for chunk, said in enumerate(() if block is None else block.chunk_first_offsets):
            found = self._firsts.get(chunk)
            if found != said:
                raise CorruptData(
                    "the manifest says that a chunk begins with another batch than it does",
                    file=object_key(self._base_key, ObjectKind.MANIFEST),
                    chunk=chunk,
                    says=said if said is not None else "none",
                    has=found if found is not None else "none",
                )
