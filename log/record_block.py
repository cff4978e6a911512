"""Decoded records: the positions of each record's parts in unpacked bytes, and the Arrow columns built from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from . import kernels, search_kernels
from .record_columns import HEADERS, MICROSECONDS, empty
from .record_parser import java_text

MAX_MILLIS = (2**63 - 1) // 1000
"""The latest time, in ms, that int64 microseconds hold. Later times become this time, and earlier ones its negative."""
MAX_RECORDS = 1 << 16
"""Maximum records of a block. It bounds the memory for tiny records: the columns, and the topic name in each row."""


@dataclass(frozen=True, slots=True)
class HeaderTable:
    """The headers of a block. ``lists`` int32 [n + 1]: record r has headers lists[r] to lists[r + 1] (not included).

    ``at`` and ``size`` [headers, 2]: the name's place in ``names``, the content's in ``contents``; size -1 for null.
    ``present``: validity bits, set for records that have headers.
    """

    lists: npt.NDArray[np.int32]
    present: npt.NDArray[np.uint8]
    at: npt.NDArray[np.int64]
    size: npt.NDArray[np.int32]
    names: npt.NDArray[np.uint8]
    contents: npt.NDArray[np.uint8]
    null_contents: int


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Records in offset order: unpacked bytes, and the positions of each record's parts in them.

    ``raw`` uint8: the bytes. ``offsets``, ``timestamps`` (ms) int64 [n]. ``types`` int32 [n]: 0 create time, 1 append
    time. ``at`` int64 and ``size`` int32 [n, 2]: key and value in ``raw``, size -1 for null. ``headers_at`` and
    ``header_counts`` [n]: position and number of a record's headers. ``sums`` int64: the sums of `kernels.parse`.
    """

    source: str
    raw: npt.NDArray[np.uint8]
    sums: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]
    types: npt.NDArray[np.int32]
    at: npt.NDArray[np.int64]
    size: npt.NDArray[np.int32]
    headers_at: npt.NDArray[np.int64]
    header_counts: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.offsets)

    def first(self, count: int) -> RecordBlock:
        """Return the first ``count`` records, if the columns are longer. ``sums`` must already count only these."""
        return self._of(slice(count), self.sums)

    def only(self, rows: slice | npt.NDArray[np.int64]) -> RecordBlock:
        """Return a block with these rows only. Row numbers must ascend."""
        size, counts = self.size[rows], self.header_counts[rows]
        sums = np.zeros(kernels.SUMS, np.int64)
        sums[kernels.KEY_BYTES : kernels.VALUE_BYTES + 1] = np.maximum(size, 0, dtype=np.int64).sum(axis=0)
        sums[kernels.NULL_KEYS : kernels.NULL_VALUES + 1] = (size < 0).sum(axis=0)
        sums[kernels.HEADER_COUNT], sums[kernels.HEADERLESS] = counts.sum(), (counts == 0).sum()
        sums[kernels.KEPT] = len(counts)
        return self._of(rows, sums)

    def _of(self, rows: slice | npt.NDArray[np.int64], sums: npt.NDArray[np.int64]) -> RecordBlock:
        columns: tuple[Any, ...] = (self.offsets, self.timestamps, self.types, self.at, self.size)
        columns += (self.headers_at, self.header_counts)
        return RecordBlock(self.source, self.raw, sums, *(column[rows] for column in columns))

    def binary(self, column: int) -> pa.Array:
        """Return the column `kernels.KEY_AT` or `kernels.VALUE_AT` as an Arrow binary array."""
        nulls = int(self.sums[kernels.NULL_KEYS if column == kernels.KEY_AT else kernels.NULL_VALUES])
        total = int(self.sums[kernels.KEY_BYTES if column == kernels.KEY_AT else kernels.VALUE_BYTES])
        return gathered(pa.binary(), self.raw, self.at, self.size, column, total, nulls)

    def header_table(self) -> HeaderTable:
        """Return the headers. Malformed names are read as by Kafka's Java client: with U+FFFD for malformed bytes."""
        count, total = len(self), int(self.sums[kernels.HEADER_COUNT])
        lists, present = np.zeros(count + 1, np.int32), np.zeros((count + 7) // 8, np.uint8)
        at, size = np.empty((total, 2), np.int64), np.empty((total, 2), np.int32)
        sums = np.zeros(4, np.int64)
        names = self.raw
        if total:
            kernels.list_headers(
                self.raw.ctypes.data, self.headers_at, self.header_counts, lists, present, at, size, sums
            )
            if sums[3]:
                names = _readable(self.raw, at, size)
        return HeaderTable(lists, present, at, size, names, self.raw, int(sums[2]))

    def headers(self) -> pa.Array:
        """Return an array with a list of (key, value) for each record, null for a record without headers."""
        if not self.sums[kernels.HEADER_COUNT]:
            return pa.nulls(len(self), HEADERS)
        table = self.header_table()
        names, contents = np.maximum(table.size, 0, dtype=np.int64).sum(axis=0).tolist()
        key = gathered(pa.string(), table.names, table.at, table.size, 0, names, 0)
        value = gathered(pa.binary(), table.contents, table.at, table.size, 1, contents, table.null_contents)
        struct = pa.StructArray.from_arrays([key, value], fields=list(HEADERS.value_type))
        buffers = [pa.py_buffer(table.present), pa.py_buffer(table.lists)]
        return pa.Array.from_buffers(HEADERS, len(self), buffers, int(self.sums[kernels.HEADERLESS]), children=[struct])

    def to_arrow(self, topic: str, partition: int, schema: pa.Schema) -> pa.RecordBatch:
        """Return the columns of ``schema``, with times in the schema's unit (`record_columns.record_schema`)."""
        arrays = [self._column(field, topic, partition) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _column(self, field: pa.Field, topic: str, partition: int) -> pa.Array:
        count = len(self)
        match field.name:
            case "key":
                return self.binary(kernels.KEY_AT)
            case "value":
                return self.binary(kernels.VALUE_AT)
            case "topic":
                return _repeated(topic, _rounded(count)).slice(0, count)
            case "partition":
                return _repeated(partition, _rounded(count)).slice(0, count)
            case "offset":
                return _numbers(field.type, self.offsets)
            case "timestamp":
                return self._times(field.type)
            case "timestampType":
                return _numbers(field.type, self.types)
            case _:
                return self.headers()

    def _times(self, kind: pa.DataType) -> pa.Array:
        if kind != MICROSECONDS:
            return _numbers(kind, self.timestamps)
        times = np.clip(self.timestamps, -MAX_MILLIS, MAX_MILLIS, out=empty(len(self), np.int64))
        return _numbers(kind, np.multiply(times, 1000, out=times))


def gathered(
    kind: pa.DataType,
    raw: npt.NDArray[np.uint8],
    at: npt.NDArray[np.int64],
    size: npt.NDArray[np.int32],
    part: int,
    total: int,
    nulls: int,
) -> pa.Array:
    """Return a binary or string array of ``total`` bytes copied from ``raw``. ``part``: column of ``at``, ``size``."""
    count = len(at)
    data = pa.allocate_buffer(total)
    ends, valid = empty(count + 1, np.int32), np.zeros((count + 7) // 8 if nulls else 0, np.uint8)
    kernels.gather(raw.ctypes.data, at, size, part, ends, valid, data.address)
    buffers = [pa.py_buffer(valid) if nulls else None, pa.py_buffer(ends), data]
    return pa.Array.from_buffers(kind, count, buffers, nulls)


def _numbers(kind: pa.DataType, values: npt.NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))], 0)


def _rounded(count: int) -> int:
    return 1 << max(10, (count - 1).bit_length())


@lru_cache(maxsize=8)
def _repeated(value: str | int, count: int) -> pa.Array:
    """Return an array with ``value`` in every row. It is cached, because constant columns are slices of the array."""
    if isinstance(value, int):
        return _numbers(pa.int32(), np.full(count, value, np.int32))
    data = value.encode()
    ends = np.arange(count + 1, dtype=np.int32) * len(data)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(data * count)], 0)


def _readable(
    raw: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], size: npt.NDArray[np.int32]
) -> npt.NDArray[np.uint8]:
    """Return the joined header names as valid UTF-8. Changes the names' ``at`` and ``size`` to places in the result."""
    names = [
        java_text(raw[start : start + length].tobytes()).encode()
        for start, length in zip(at[:, 0].tolist(), size[:, 0].tolist(), strict=True)
    ]
    size[:, 0] = [len(name) for name in names]
    at[:, 0] = np.cumsum(size[:, 0], dtype=np.int64) - size[:, 0]
    return np.frombuffer(b"".join(names), np.uint8)


_NO_BYTES = b"\0"
"""Stands for a missing or empty key: its address is valid, but nothing is read from it."""


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Selects records whose key equals ``key`` and that contain the bytes ``contains``. A null key never matches.
    ``contains`` must lie within the key, the value, or one header's name or value. None means no condition.

    The time is linear in the size of the records, for any ``contains``.
    """

    key: bytes | None = None
    contains: bytes | None = None
    _key: npt.NDArray[np.uint8] = field(init=False, repr=False, compare=False)
    _contains: npt.NDArray[np.uint8] = field(init=False, repr=False, compare=False)
    _back: npt.NDArray[np.int64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        pattern = np.array(bytearray(self.contains or b""), np.uint8)
        arrays: dict[str, Any] = {
            "_key": np.array(bytearray(self.key or _NO_BYTES), np.uint8),
            "_contains": pattern if len(pattern) else np.zeros(1, np.uint8),
            "_back": search_kernels.fall_back(pattern),
        }
        for name, value in arrays.items():
            object.__setattr__(self, name, value)

    def of(self, block: RecordBlock) -> RecordBlock:
        """Return the block with the selected records only."""
        matches = np.zeros(len(block), np.uint8)
        search_kernels.match(
            block.raw.ctypes.data, block.at, block.size, block.headers_at, block.header_counts,
            self._key.ctypes.data, -1 if self.key is None else len(self.key), self._contains.ctypes.data, self._back,
            matches,
        )  # fmt: skip
        return block if matches.all() else block.only(np.flatnonzero(matches))
