"""Decode record batches of any codec to Arrow, or to blocks that keep Kafka's own milliseconds.

Memory: one piece (about `PIECE_BYTES` of unpacked records, or one larger batch), and the columns of one of its blocks.
Uncompressed batches are read in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..state.errors import BatchTooLarge, CorruptData
from ..state.segment import AbortedRange
from . import kernels
from .batch import HEADER_BYTES, iter_batches
from .compression import FIRST_BYTES, MAX_RECORDS_BYTES, Scratch, decompress_into
from .isolation import AbortFilter
from .record_block import MAX_RECORDS as MAX_RECORDS
from .record_block import RecordBlock as RecordBlock
from .record_block import RecordFilter
from .record_columns import RECORD_SCHEMA as RECORD_SCHEMA
from .record_columns import empty
from .record_columns import record_schema as record_schema

PIECE_BYTES = 3 << 19
"""Bytes. Python spends about 0.5 ms on each block; a larger piece no longer fits the CPU's cache."""
MAX_OFFSET = kernels.MAX_OFFSET
_SCAN_ROWS = 4096
_PLACE = (kernels.POSITION, kernels.SIZE, kernels.ATTRIBUTES)
_SUM_HERE_BELOW = 1024
"""Batch size in bytes. Below it, the kernel's CRC table is faster than a call into the CRC library."""

Table = npt.NDArray[np.int64]
Looked = Callable[[int, int], None]
"""Callback that counts work: (records, bytes). Bytes are the stored size of hidden batches, else the unpacked size."""


def decode_records(
    data: bytes | bytearray | memoryview,
    *,
    source: str,
    position: int = 0,
    aborted: Sequence[AbortedRange] | None = None,
    start: int = 0,
    end: int | None = None,
    verify_crc: bool = True,
    most_unpacked: int = MAX_RECORDS_BYTES,
    piece_bytes: int = PIECE_BYTES,
    looked: Looked | None = None,
) -> Iterator[RecordBlock]:
    """Yield the records of complete batches with offsets in [``start``, ``end``), in blocks that are never empty.

    ``aborted`` None means read_uncommitted; otherwise records in these ranges are hidden. Control records are always
    hidden. Raises CorruptData with file, position and reason, after the records of all batches before the faulty one.
    Raises BatchTooLarge if the records of one batch have more than ``most_unpacked`` bytes. Memory outside the batches
    is never read.
    """
    final = MAX_OFFSET if end is None else end - 1
    more = {"most_unpacked": most_unpacked, "piece_bytes": piece_bytes}
    decoder = _Decoder(data, source, position, start, final, reuse=False, looked=looked, **more)
    return decoder.blocks(AbortFilter(aborted or ()), verify_crc)


def decode_batches(
    data: bytes | bytearray | memoryview,
    *,
    source: str,
    topic: str,
    partition: int,
    position: int = 0,
    aborted: Sequence[AbortedRange] | None = None,
    start: int = 0,
    end: int | None = None,
    verify_crc: bool = True,
    columns: Sequence[str] | None = None,
    record_filter: RecordFilter | None = None,
    looked: Looked | None = None,
    milliseconds: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the blocks of `decode_records` as Arrow batches with the schema of `record_schema`. ``record_filter`` keeps
    only matching records, so an Arrow batch may be empty.
    """
    schema = record_schema(columns=columns, milliseconds=milliseconds)
    final = MAX_OFFSET if end is None else end - 1
    decoder = _Decoder(data, source, position, start, final, reuse=True, looked=looked)
    for block in decoder.blocks(AbortFilter(aborted or ()), verify_crc):
        yield (block if record_filter is None else record_filter.of(block)).to_arrow(topic, partition, schema)


def bytes_below(data: bytes | memoryview, limit: int, *, source: str) -> int:
    """Return the size in bytes of the batches whose base offset is below ``limit``. ``data`` holds complete batches.
    Every CRC is checked, also above ``limit``. Raises CorruptData."""
    size = 0
    for rows in _Decoder(data, source, 0, 0, MAX_OFFSET, reuse=True).headers(verify_crc=True):
        size += int(rows[rows[:, kernels.BASE] < limit, kernels.SIZE].sum())
    return size


class _Decoder:
    """Decodes the data of one call. With ``reuse``, a block is valid only until the next one, which uses its memory."""

    def __init__(
        self,
        data: bytes | bytearray | memoryview,
        source: str,
        position: int,
        start: int,
        final: int,
        *,
        reuse: bool,
        most_unpacked: int = MAX_RECORDS_BYTES,
        piece_bytes: int = PIECE_BYTES,
        looked: Looked | None = None,
    ) -> None:
        self._looked = looked or (lambda records, size: None)
        self._view = memoryview(data).cast("B")
        self._raw = np.frombuffer(data, np.uint8)
        self._source, self._position = source, position
        self._start, self._final = start, final
        self._reuse, self._scratch = reuse, Scratch(np.empty(0, np.uint8))
        self._most_unpacked, self._piece_bytes = most_unpacked, piece_bytes
        self._held: tuple[npt.NDArray[Any], ...] = ()

    def blocks(self, hidden: AbortFilter, verify_crc: bool) -> Iterator[RecordBlock]:
        for rows in self.headers(verify_crc):
            shown = self._shown(rows, hidden)
            selected = rows[shown]
            self._looked(0, int(rows[~shown, kernels.SIZE].sum()))
            at = 0
            while at < len(selected):
                if selected[at, kernels.ATTRIBUTES] & 7:
                    at, raw, batches = self._unpacked(selected, at)
                else:
                    at, raw, batches = self._stored(selected, at)
                self._looked(0, int((batches[:, kernels.END] - batches[:, kernels.START]).sum()))
                for block in self._parsed(raw, batches, np.zeros(4, np.int64)):
                    self._looked(len(block), 0)
                    yield block

    def headers(self, verify_crc: bool) -> Iterator[Table]:
        """Yield tables of some thousand batch headers. Positions are those in the data. Raises CorruptData."""
        size, at, last = len(self._raw), 0, -1
        table = np.empty((min(_SCAN_ROWS, size // HEADER_BYTES + 1), kernels.HEADER_COLUMNS), np.int64)
        while at < size:
            sum_below = _SUM_HERE_BELOW if verify_crc else 0
            count, reached, after = kernels.scan(self._raw.ctypes.data, size, at, last, sum_below, table)
            rows = table[:count]
            wrong = self._wrong_sum(rows) if verify_crc else None
            if wrong is not None:
                yield rows[:wrong]
                self._say_what_is_wrong(int(rows[wrong, kernels.POSITION]), -1, True)
            yield rows
            if reached < size and count < len(table):
                self._say_what_is_wrong(reached, after, verify_crc)
            at, last = reached, after

    def _wrong_sum(self, rows: Table) -> int | None:
        """Return the row of the first batch whose CRC is wrong, or None if all are right."""
        large = np.flatnonzero(rows[:, kernels.SIZE] >= _SUM_HERE_BELOW)
        sums = rows[large][:, (kernels.POSITION, kernels.SIZE, kernels.CRC)].tolist()
        for row, (at, size, crc) in zip(large.tolist(), sums, strict=True):
            if google_crc32c.value(self._raw[at + 21 : at + size]) != crc:
                return int(row)
        return None

    def _say_what_is_wrong(self, at: int, after: int, verify_crc: bool) -> None:
        """Raise CorruptData with the message that `iter_batches` gives for this fault."""
        position = self._position + at
        for _ in iter_batches(
            self._view[at:], source=self._source, position=position, verify_crc=verify_crc, after=after
        ):
            break
        raise CorruptData("not a record batch", file=self._source, position=position)

    def _shown(self, rows: Table, hidden: AbortFilter) -> npt.NDArray[np.bool_]:
        attributes = rows[:, kernels.ATTRIBUTES]
        shown: npt.NDArray[np.bool_] = (
            ((attributes & 32) == 0)
            & (rows[:, kernels.LAST] >= self._start)
            & (rows[:, kernels.BASE] <= self._final)
            & ((rows[:, kernels.RECORDS] > 0) | (rows[:, kernels.SIZE] > HEADER_BYTES))
        )
        if hidden:
            for row in np.flatnonzero(shown & ((attributes & 16) != 0)).tolist():
                shown[row] = not hidden.covers(int(rows[row, kernels.PRODUCER]), int(rows[row, kernels.BASE]))
        return shown

    def _stored(self, rows: Table, at: int) -> tuple[int, npt.NDArray[np.uint8], Table]:
        """Select a piece of uncompressed batches from row ``at`` on, in place. Return the next row, the bytes that hold
        the batches, and the table of the batches for `kernels.parse`."""
        run = rows[at:]
        packed = np.flatnonzero(run[:, kernels.ATTRIBUTES] & 7)
        ends = np.cumsum(run[:, kernels.SIZE])
        count = max(1, int(np.searchsorted(ends, self._piece_bytes)))
        count = min(count, int(packed[0])) if len(packed) else count
        run = run[:count]
        large = np.flatnonzero(run[:, kernels.SIZE] - HEADER_BYTES > self._most_unpacked)
        if len(large):
            if not large[0]:
                raise self._too_large(run[0])
            run = run[: large[0]]
        batches = _batch_table(run)
        batches[:, kernels.START] = run[:, kernels.POSITION] + HEADER_BYTES
        batches[:, kernels.END] = run[:, kernels.POSITION] + run[:, kernels.SIZE]
        return at + len(run), self._raw, batches

    def _unpacked(self, rows: Table, at: int) -> tuple[int, npt.NDArray[np.uint8], Table]:
        """Unpack consecutive batches from row ``at`` on, until a piece is full. Return the same values as `_stored`."""
        if not self._reuse or not len(self._scratch.data):
            self._scratch = Scratch(empty(FIRST_BYTES, np.uint8))
        scratch, first, ends = self._scratch, at, list[int]()
        scratch.used = 0
        for position, size, attributes in rows[first:, _PLACE].tolist():
            if scratch.used >= self._piece_bytes:
                break
            try:
                decompress_into(
                    scratch,
                    attributes & 7,
                    self._view[position + HEADER_BYTES : position + size],
                    source=self._source,
                    position=self._position + position,
                    limit=self._most_unpacked,
                )
            except (BatchTooLarge, CorruptData) as error:
                if ends:
                    break  # the batches before this one are yielded first; the next call raises
                if isinstance(error, CorruptData):
                    raise
                raise self._too_large(rows[at]) from error
            ends.append(scratch.used)
            at += 1
        batches = _batch_table(rows[first:at])
        batches[0, kernels.START] = 0
        batches[1:, kernels.START] = ends[:-1]
        batches[:, kernels.END] = ends
        return at, scratch.data, batches

    def _too_large(self, row: Table) -> BatchTooLarge:
        return BatchTooLarge(
            f"the records of a batch are more than {self._most_unpacked} bytes",
            offset=int(row[kernels.BASE]),
            stored_bytes=int(row[kernels.SIZE]),
        )

    def _parsed(self, raw: npt.NDArray[np.uint8], batches: Table, state: Table) -> Iterator[RecordBlock]:
        """Yield the records from ``state`` (of `kernels.parse`) on. If a batch is faulty, yield the records of the
        batches before it, then raise CorruptData."""
        code = kernels.FULL
        # a record takes 7 bytes at least
        fitting = int(
            np.minimum(batches[:, kernels.COUNT], (batches[:, kernels.END] - batches[:, kernels.START]) // 7).sum()
        )
        while code == kernels.FULL:
            room = max(1, min(fitting, MAX_RECORDS))
            columns: tuple[Any, ...] = (empty(room, np.int64), empty(room, np.int64), empty(room, np.int32))
            columns += tuple(column[:room] for column in self._columns(room))
            block, begun = RecordBlock(self._source, raw, np.zeros(kernels.SUMS, np.int64), *columns), state.copy()
            code = kernels.parse(raw.ctypes.data, batches, self._start, self._final, state, block.sums, *columns)
            if code not in (kernels.OK, kernels.FULL):
                if begun[kernels.AT_BATCH] < state[kernels.AT_BATCH]:
                    yield from self._parsed(raw, batches[: state[kernels.AT_BATCH]], begun)
                self._refuse(code, state, batches)
            if kept := int(block.sums[kernels.KEPT]):
                yield block if kept == room else block.first(kept)

    def _columns(self, room: int) -> tuple[npt.NDArray[Any], ...]:
        """Return memory for ``room`` or more records, for the columns of `RecordBlock` that Arrow arrays do not use."""
        if not self._reuse or not self._held or len(self._held[0]) < room:
            pairs = (room, 2)
            self._held = (
                *(np.empty(pairs, np.int64), np.empty(pairs, np.int32)),
                *(np.empty(room, np.int64), np.empty(room, np.int32)),
            )
        return self._held

    def _refuse(self, code: int, state: Table, batches: Table) -> None:
        batch = batches[state[kernels.AT_BATCH]]
        raise CorruptData(
            kernels.REASONS[code],
            file=self._source,
            position=self._position + int(batch[kernels.POSITION_IN_DATA]),
            batch=f"{batch[kernels.FROM]}..{batch[kernels.TO]}",
            byte_of_records=int(state[kernels.AT_BYTE] - batch[kernels.START]),
        )


def _batch_table(rows: Table) -> Table:
    """Return the columns of batch headers that `kernels.parse` reads. The caller fills in `START` and `END`."""
    batches = np.empty((len(rows), kernels.BATCH_COLUMNS), np.int64)
    by_append = (rows[:, kernels.ATTRIBUTES] >> 3) & 1
    batches[:, kernels.FROM] = rows[:, kernels.BASE]
    batches[:, kernels.TO] = rows[:, kernels.LAST]
    batches[:, kernels.TIME] = np.where(by_append, rows[:, kernels.MAX_TIME], rows[:, kernels.FIRST_TIME])
    batches[:, kernels.BY_APPEND] = by_append
    batches[:, kernels.COUNT] = rows[:, kernels.RECORDS]
    batches[:, kernels.POSITION_IN_DATA] = rows[:, kernels.POSITION]
    return batches
