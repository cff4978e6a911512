"""Record batches of any codec to Arrow, or to blocks that keep Kafka's own milliseconds.

Memory: one piece (about `PIECE_BYTES` of unpacked records, or one batch where that is larger), once unpacked and once
as Arrow buffers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..state.errors import CorruptData, InvalidRequest
from ..state.segment import AbortedRange
from . import kernels
from .batch import APPEND_TIME, HEADER_BYTES, BatchHeader, iter_batches
from .compression import decompress
from .isolation import AbortFilter

PIECE_BYTES = 1 << 20
MAX_OFFSET = 2**63 - 1
MAX_MILLIS = (2**63 - 1) // 1000

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
FIELDS = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
}
"""The columns of Spark's Kafka source, in its order; every one nullable."""


def record_schema(*, include_headers: bool = True, columns: Sequence[str] | None = None) -> pa.Schema:
    """The Arrow schema of decoded records. Raises InvalidRequest for an unknown column."""
    names = [name for name in FIELDS if include_headers or name != "headers"]
    if columns is not None:
        unknown = [name for name in columns if name not in FIELDS]
        if unknown:
            raise InvalidRequest("unknown column", column=unknown[0], columns=",".join(FIELDS))
        names = list(columns)
    return pa.schema([pa.field(name, FIELDS[name]) for name in names])


RECORD_SCHEMA = record_schema()
"""All columns."""


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Records of one piece: unpacked bytes, and where each record's parts lie in them.

    ``table`` int64 [n, 8] in the columns of `kernels`; ``types`` int8 [n]; ``sizes`` int64 [5] as `kernels.measure`.
    """

    source: str
    raw: npt.NDArray[np.uint8]
    table: npt.NDArray[np.int64]
    types: npt.NDArray[np.int8]
    sizes: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.table)

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        return self.table[:, kernels.OFFSET]

    @property
    def timestamps(self) -> npt.NDArray[np.int64]:
        """Milliseconds."""
        return self.table[:, kernels.TIMESTAMP]

    def encoded(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """The record digest's bytes, and where each record ends in them."""
        keys, values, headers, names, contents = (int(size) for size in self.sizes)
        target = np.empty(len(self) * 29 + keys + values + headers * 8 + names + contents, np.uint8)
        ends = np.empty(len(self), np.int64)
        kernels.encode_records(self.raw, self.table, self.types, len(self), target, ends)
        return target, ends

    def binary(self, column: int) -> pa.Array:
        """`kernels.KEY_AT` or `kernels.VALUE_AT` as an Arrow binary array."""
        count, size = len(self), int(self.sizes[0 if column == kernels.KEY_AT else 1])
        data = np.empty(size, np.uint8)
        offsets, valid = np.empty(count + 1, np.int32), np.zeros((count + 7) // 8, np.uint8)
        nulls = kernels.gather(self.raw, self.table, count, column, data, offsets, valid)
        buffers = [pa.py_buffer(valid) if nulls else None, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.binary(), count, buffers, nulls)

    def headers(self) -> pa.Array:
        """A list of (key, value) a record; null for a record without headers. Raises CorruptData for bad UTF-8."""
        count, total = len(self), int(self.sizes[2])
        if total == 0:
            return pa.nulls(count, HEADERS)
        lists, present = np.empty(count + 1, np.int32), np.zeros((count + 7) // 8, np.uint8)
        names, name_ends = np.empty(int(self.sizes[3]), np.uint8), np.empty(total + 1, np.int32)
        contents, content_ends = np.empty(int(self.sizes[4]), np.uint8), np.empty(total + 1, np.int32)
        valid = np.zeros((total + 7) // 8, np.uint8)
        nulls = kernels.gather_headers(
            self.raw, self.table, count, lists, present, names, name_ends, contents, content_ends, valid
        )
        key = pa.Array.from_buffers(pa.string(), total, [None, pa.py_buffer(name_ends), pa.py_buffer(names)], 0)
        try:
            key.validate(full=True)
        except pa.ArrowInvalid as error:
            raise CorruptData("a header's name is not UTF-8", file=self.source, reason=error) from error
        bits = pa.py_buffer(valid) if nulls else None
        parts = [bits, pa.py_buffer(content_ends), pa.py_buffer(contents)]
        value = pa.Array.from_buffers(pa.binary(), total, parts, nulls)
        struct = pa.StructArray.from_arrays([key, value], fields=list(HEADERS.value_type))
        without = int((self.table[:, kernels.HEADERS] == 0).sum())
        return pa.Array.from_buffers(
            HEADERS, count, [pa.py_buffer(present), pa.py_buffer(lists)], without, children=[struct]
        )

    def to_arrow(self, topic: str, partition: int, schema: pa.Schema) -> pa.RecordBatch:
        """Only the columns of ``schema``. Raises CorruptData for times that microseconds cannot hold."""
        count = len(self)
        arrays = [self._column(name, topic, partition, count) for name in schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _column(self, name: str, topic: str, partition: int, count: int) -> pa.Array:
        match name:
            case "key":
                return self.binary(kernels.KEY_AT)
            case "value":
                return self.binary(kernels.VALUE_AT)
            case "topic":
                return _repeated(topic, count)
            case "partition":
                return pa.array(np.full(count, partition, np.int32))
            case "offset":
                return pa.array(np.ascontiguousarray(self.offsets))
            case "timestamp":
                return self._times()
            case "timestampType":
                return pa.array(self.types.astype(np.int32))
            case _:
                return self.headers()

    def _times(self) -> pa.Array:
        times = self.timestamps
        if count := len(times):
            low, high = int(times.min()), int(times.max())
            if low < -MAX_MILLIS or high > MAX_MILLIS:
                bad = int(self.offsets[int(times.argmax() if high > MAX_MILLIS else times.argmin())])
                raise CorruptData(
                    "timestamp does not fit into microseconds", file=self.source, offset=bad, records=count
                )
        return pa.array(times * 1000).cast(FIELDS["timestamp"])


def _repeated(text: str, count: int) -> pa.Array:
    data = text.encode()
    offsets = np.arange(count + 1, dtype=np.int32) * len(data)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data * count)], 0)


def decode_records(
    data: bytes | bytearray | memoryview,
    *,
    source: str,
    position: int = 0,
    aborted: Sequence[AbortedRange] | None = None,
    start: int = 0,
    end: int | None = None,
    verify_crc: bool = True,
) -> Iterator[RecordBlock]:
    """Blocks of the records in whole batches, offsets in [``start``, ``end``).

    ``aborted`` None reads uncommitted; otherwise records of these aborted ranges are hidden. Control records never
    show. Raises CorruptData with file, position and reason; never reads outside the batches.
    """
    stop = MAX_OFFSET if end is None else end
    hidden = AbortFilter(aborted or ())
    view = memoryview(data)
    piece: list[tuple[BatchHeader, bytes]] = []
    size = 0
    for batch in iter_batches(view, source=source, position=position, verify_crc=verify_crc):
        if batch.is_control or batch.last_offset < start or batch.base_offset >= stop or hidden.hides(batch):
            continue
        at = batch.position - position
        payload = bytes(view[at + HEADER_BYTES : at + batch.size_bytes])
        records = decompress(batch.codec, payload, source=source, position=batch.position)
        if 7 * batch.record_count > len(records):
            raise CorruptData(
                "batch says more records than it can hold",
                file=source,
                position=batch.position,
                records=batch.record_count,
            )
        piece.append((batch, records))
        size += len(records)
        if size >= PIECE_BYTES:
            yield _block(piece, source, start, stop)
            piece, size = [], 0
    if piece:
        yield _block(piece, source, start, stop)


def _block(piece: list[tuple[BatchHeader, bytes]], source: str, start: int, stop: int) -> RecordBlock:
    batches = np.empty((len(piece), 7), np.int64)
    at = 0
    for row, (batch, records) in enumerate(piece):
        by_append = batch.timestamp_type == APPEND_TIME
        append_time = max(batch.max_timestamp, 0) if by_append else -1
        batches[row] = (
            at,
            at + len(records),
            batch.base_offset,
            batch.last_offset,
            batch.first_timestamp,
            append_time,
            batch.record_count,
        )
        at += len(records)
    raw = np.frombuffer(b"".join(records for _, records in piece), np.uint8)
    table = np.empty((int(batches[:, kernels.RECORDS].sum()), kernels.COLUMNS), np.int64)
    sizes = np.zeros(5, np.int64)
    kept, error, row, byte = kernels.measure(raw, batches, start, stop, table, sizes)
    if error != kernels.OK:
        batch = piece[row][0]
        raise CorruptData(
            kernels.REASONS[error],
            file=source,
            position=batch.position,
            batch=f"{batch.base_offset}..{batch.last_offset}",
            byte_of_records=int(byte - batches[row, kernels.START]),
        )
    table = table[:kept]
    rows = np.searchsorted(batches[:, kernels.LAST], table[:, kernels.OFFSET])
    kinds = np.fromiter((batch.timestamp_type for batch, _ in piece), np.int8, len(piece))
    types: Any = kinds[rows] if kept else np.empty(0, np.int8)
    return RecordBlock(source, raw, table, types, sizes)


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
    include_headers: bool = True,
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """As `decode_records`, in Arrow with the schema of `record_schema`; blocks without a record are left out."""
    schema = record_schema(include_headers=include_headers, columns=columns)
    blocks = decode_records(
        data, source=source, position=position, aborted=aborted, start=start, end=end, verify_crc=verify_crc
    )
    for block in blocks:
        if len(block):
            yield block.to_arrow(topic, partition, schema)
