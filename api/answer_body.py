"""The body of an answer. Pieces are decoded and encoded once, in a pool's thread, before the status line is sent.

    piece  ->  blocks  ->  the caller's form  ->  (zstd, gzip)  ->  chunks that are ready

The status reports a bad record, so no body breaks off at one. An answer ends before a damaged batch, and the call for
the next offset reports it. Before the status line, the part of an answer beyond `READY_BYTES` is only checked:
decoded, CRCs compared, and parsed if JSON was requested. It is encoded when the client has taken the earlier chunks.
Memory is taken from `answer_memory.py` before it is used: for the ready chunks and, if there is a rest, for its batches
as stored and for the largest decoded block with its encoding. A batch that unpacks to more than ``gateway.max_bytes``
is refused, and the error names its offset.

A scan encodes the records that it finds. It ends before the status line, so the answer's rest is at most one block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from ..fetch.piece import Fetched, as_written, below, naming
from ..log.decode import RecordBlock, bytes_below, decode_records
from ..log.json_lines import CHUNK_BYTES, Encoding
from ..log.record_block import RecordFilter
from ..state.errors import BatchTooLarge, CorruptData, TierstateError
from ..state.offsets import Offset
from ..state.routing import Isolation, Tier
from ..values.registered_values import AnswerValues
from .answer_memory import Held
from .media import ARROW, BATCHES, KAFKA_JSON, PARQUET, Coding, coder_of
from .record_forms import batches_trailer, form_of, require_json

READY_BYTES = 8 * 1024 * 1024
"""About the most bytes of an answer that are encoded before its status line."""
UNPACKED_FIRST = 2 * 1024 * 1024
"""Bytes that one batch may unpack to before more memory is taken for it."""
BLOCK_BYTES = 8 * 1024 * 1024
"""Bytes of a block in addition to its largest batch: its other batches and its columns."""
COLUMNS_BYTES = 100
"""Bytes that the columns of a block take for one record."""

Chunk = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Call:
    """One call, with checked parameters."""

    topic: str
    partition: int
    media_type: str
    coding: Coding | None
    max_bytes: int
    offset: int | None = None
    timestamp: int | None = None
    max_records: int | None = None
    isolation: Isolation = Isolation.READ_COMMITTED
    tier: Tier = Tier.AUTO
    wait_s: float = 0
    encoding: Encoding = Encoding.UTF8
    values: AnswerValues | None = None
    """Decodes keys and values by a schema registry; None: they are not decoded."""


class ScanEnd(StrEnum):
    """The values of the header ``X-Scan-Stopped``."""

    END = "end"
    BUDGET = "budget"
    RECORDS = "records"
    BYTES = "bytes"
    TIER = "tier"
    ERROR = "error"


class Scan:
    """The progress of a call that searches for records, and the reason why it ended: one of `ScanEnd`.

    ``budget``: bytes of unpacked batches; a scan exceeds it by at most 1 MiB or one batch. It answers with the records
    found, often none, and ``X-Next-Offset`` is the offset to continue at.
    """

    def __init__(self, record_filter: RecordFilter, budget: int) -> None:
        self.record_filter, self.budget = record_filter, budget
        self.records = self.bytes = 0
        self.stopped: ScanEnd | None = None

    def looked(self, records: int, size: int) -> None:
        """Count searched bytes; the decoder calls this. ``records`` is ignored: the blocks' reader counts them."""
        self.bytes += size
        if self.bytes >= self.budget:
            self.stop(ScanEnd.BUDGET)

    def stop(self, why: ScanEnd) -> None:
        """Stop for this reason. The first reason is kept, except that any later reason replaces BUDGET."""
        if self.stopped in (None, ScanEnd.BUDGET):
            self.stopped = why


class AnswerBody:
    """A body for one thread at a time. ``held``: its memory, which the caller releases."""

    def __init__(self, call: Call, held: Held, most_unpacked: int, scan: Scan | None = None) -> None:
        """``most_unpacked``: bytes that one batch may unpack to. ``scan``: the body has only records that it finds."""
        self.call, self._scan = call, scan
        self._reached: Offset | None = None
        """The offset to continue at; None before the first block."""
        self._behind: _Shown | None = None
        """The blocks that the rest is made of; None if there is no rest."""
        self.short = False
        """Whether the body ends before a batch that cannot be shown."""
        self.ready: list[Chunk] = []
        self.size = 0
        """Bytes that were ready; of the whole body if it is `whole`."""
        self.stored = 0
        """Bytes of the pieces, as stored."""
        self._held, self._most_unpacked = held, most_unpacked
        self._most = min(UNPACKED_FIRST, most_unpacked)
        self._form = form_of(call.media_type, call.topic, call.partition, call.encoding, call.values)
        self._beside = 0 if call.values is None else call.values.most
        self._coder = coder_of(call.coding)
        self._left = call.max_records
        self._ready_bytes = min(READY_BYTES, held.most // 16)
        self._rest: Iterator[Chunk] | None = None
        self.ended = False
        self._take(self._form.begin())

    @property
    def wants_more(self) -> bool:
        """Return whether another piece may follow: ``max_records`` is not reached, or a scan has not stopped."""
        if self._scan is not None:
            return self._scan.stopped is None
        return not self.short and self._rest is None and bool(self._left) and self.stored < self.call.max_bytes

    @property
    def whole(self) -> bool:
        return self._rest is None

    def add(self, piece: Fetched) -> Offset:
        """Add the requested records of a piece. Return the offset to continue at.

        Raises CorruptData, NotJson, BatchTooLarge, Throttled. After the first block, the body instead ends before
        damage and before a batch that is too large. A scan ends before any error. The next call reports the error.
        """
        self.stored += len(piece.data)
        try:
            self._reached = self._add(piece)
        except TierstateError as error:
            if self._reached is None or (self._scan is None and not isinstance(error, (CorruptData, BatchTooLarge))):
                raise
            if self._scan is not None:
                self._scan.stop(ScanEnd.ERROR)
            if self._behind is not None:
                self._behind.end_at(self._reached)
            self.short = True
            self._held.resize(self.size + (0 if self._rest is None else len(piece.data) + self._beside))
        return self._reached

    def _add(self, piece: Fetched) -> Offset:
        blocks = _Shown(self.call, piece, self._most, self._left, self._scan)
        largest = 0
        while True:
            self._hold(piece, 2 * self._most + BLOCK_BYTES)
            try:
                for block in blocks:
                    largest = max(largest, _bytes_of(block, self.call.media_type))
                    self._hold(piece, max(largest, 2 * self._most + BLOCK_BYTES))
                    if self._rest is None:
                        self._encode(block, blocks, piece)
                    else:
                        _look_at(block, self.call.media_type)
                    self._reached = blocks.reached
                    if self._scan is not None and self._is_enough(self._scan, blocks):
                        break
                break
            except _TooLarge as error:
                if self._most == self._most_unpacked:
                    raise error.batch from error
            self._most = min(self._most * 8, self._most_unpacked)
            behind = replace(piece, offset=blocks.reached)
            blocks = _Shown(self.call, behind, self._most, blocks.left, self._scan)
        self._held.resize(self.size + (0 if self._rest is None else len(piece.data) + largest + self._beside))
        self._left = blocks.left
        return piece.next_offset if blocks.through else blocks.reached

    def _is_enough(self, scan: Scan, blocks: _Shown) -> bool:
        if blocks.left == 0:
            scan.stop(ScanEnd.RECORDS)
        elif self._rest is not None or self.size >= self.call.max_bytes:
            scan.stop(ScanEnd.BYTES)
        return scan.stopped is not None

    def end(self) -> None:
        self.ended = True
        if self._rest is None:
            self._take(self._form.end())
            if self._coder is not None:
                self._append(self._coder.finish())

    def later(self) -> Chunk | None:
        """Return the next chunk after the ready ones; None after the last one."""
        return None if self._rest is None else next(self._rest, None)

    def _hold(self, piece: Fetched, decoded: int) -> None:
        self._held.resize(max(self.size, self._ready_bytes) + len(piece.data) + decoded + self._beside)

    def _encode(self, block: RecordBlock, blocks: _Shown, piece: Fetched) -> None:
        """Encode a block until enough is ready. The remaining records become the rest."""
        chunks = self._encoded(block, piece.tier)
        for chunk in chunks:
            self._take(chunk)
            if self.size >= self._ready_bytes:
                left = blocks.left if self._scan is None else 0
                self._behind = _Shown(self.call, replace(piece, offset=blocks.reached), self._most_unpacked, left)
                self._rest = self._remaining(chunks, self._behind, piece.tier)
                return

    def _remaining(self, chunks: Iterator[Chunk], blocks: _Shown, tier: Tier) -> Iterator[Chunk]:
        coded = self._coder.code if self._coder is not None else lambda chunk: chunk
        yield from map(coded, chunks)
        for block in blocks:
            yield from map(coded, self._encoded(block, tier))
        yield coded(self._form.end())
        if self._coder is not None:
            yield self._coder.finish()

    def _encoded(self, block: RecordBlock, tier: Tier) -> Iterator[Chunk]:
        if self.call.media_type == KAFKA_JSON:
            require_json(block)
        return self._form.chunks(block, tier)

    def _take(self, chunk: Chunk) -> None:
        self._append(chunk if self._coder is None or not len(chunk) else self._coder.code(chunk))

    def _append(self, chunk: Chunk) -> None:
        if len(chunk):
            self.ready.append(chunk)
            self.size += len(chunk)


class StoredBody:
    """The batches of one piece, as they are stored. It has the interface of `AnswerBody`."""

    wants_more, whole, ended = False, True, True

    def __init__(self, call: Call, held: Held) -> None:
        self.ready: list[Chunk] = []
        self.size = self.stored = 0
        self._place, self._held = (call.topic, call.partition), held

    def end(self) -> None:
        pass

    def later(self) -> None:
        return None

    def add(self, piece: Fetched) -> Offset:
        """Add the batches before a damaged one. Raises CorruptData if the first batch is damaged."""
        self._held.resize(2 * len(piece.data))
        source = piece.source(*self._place)
        try:
            size = bytes_below(piece.data, piece.limit, source=source)
        except CorruptData:
            with naming(*self._place, piece.offset):
                piece = as_written(piece, source)
            size = len(piece.data)
        whole = len(piece.data)
        trailer = batches_trailer(piece)
        self.ready = [piece.data if size == whole else memoryview(piece.data)[:size], trailer]
        self.size, self.stored = size + len(trailer), whole
        return piece.next_offset


class _TooLarge(Exception):
    """A batch is too large to decode. `Held.resize` raises `BatchTooLarge` itself, for another reason."""

    def __init__(self, error: BatchTooLarge) -> None:
        self.batch = BatchTooLarge(f"{error.message}; {BATCHES} has it as it is stored", **error.facts)


class _Shown:
    """Yields blocks of the records in [offset, limit) that the isolation level shows, at most ``left`` (None: all).

    With a ``scan``, only records that match its filter, until it stops. ``reached``: the offset after the last block.
    """

    def __init__(
        self, call: Call, piece: Fetched, most_unpacked: int, left: int | None, scan: Scan | None = None
    ) -> None:
        self.left, self.reached, self.through = left, piece.offset, False
        self._call, self._piece, self._most_unpacked, self._scan = call, piece, most_unpacked, scan

    def __iter__(self) -> Iterator[RecordBlock]:
        if self.left == 0:
            return
        for decoded_block in self._blocks():
            reached = int(decoded_block.offsets[-1]) + 1
            block = decoded_block if self._scan is None else self._scan.record_filter.of(decoded_block)
            if self.left is not None:
                if len(block) > self.left:
                    block = block.only(slice(self.left))
                    reached = int(block.offsets[-1]) + 1
                self.left -= len(block)
            self.reached = Offset(reached)
            if self._scan is not None:
                self._scan.records += int(decoded_block.offsets.searchsorted(reached))
            if len(block):
                yield block
            if self.left == 0 or (self._scan is not None and self._scan.stopped is not None):
                return
        self.through = True

    def end_at(self, offset: Offset) -> None:
        """Keep only the records below the offset. Call this before the first block is taken."""
        self._piece = below(self._piece, offset)

    def _blocks(self) -> Iterator[RecordBlock]:
        place = self._call.topic, self._call.partition
        blocks = decode_records(
            self._piece.data,
            source=self._piece.source(*place),
            position=self._piece.position,
            aborted=self._piece.aborted,
            start=self.reached,
            end=self._piece.limit,
            most_unpacked=self._most_unpacked,
            looked=None if self._scan is None else self._scan.looked,
        )
        try:
            with naming(*place, self.reached):
                yield from (block for block in blocks if len(block))
        except BatchTooLarge as error:
            raise _TooLarge(error) from error


def _look_at(block: RecordBlock, media_type: str) -> None:
    """Raise the errors that encoding the block would raise."""
    if media_type == KAFKA_JSON:
        require_json(block)
    block.headers()


def _bytes_of(block: RecordBlock, media_type: str) -> int:
    """Return the most bytes that encoding the block takes. A byte may be six in JSON, and is copied once to be sent."""
    sizes = block.size.clip(0)
    plain, longest = int(sizes.sum()), int(sizes.max(initial=0))
    block_bytes = block.raw.nbytes + COLUMNS_BYTES * len(block)
    return block_bytes + (3 * plain if media_type in (ARROW, PARQUET) else 12 * max(CHUNK_BYTES, longest))
