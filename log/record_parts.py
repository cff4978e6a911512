"""Convert decoded blocks and Arrow rows to the form that kernels read: bytes, and each part's position and size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..state.errors import InvalidRequest
from . import kernels
from .record_block import HeaderTable, RecordBlock
from .record_columns import RECORD_SCHEMA, constant, numbers

_ZERO = constant(0, pa.int32())


@dataclass(frozen=True, slots=True)
class RecordParts:
    """``offsets``, ``timestamps`` (ms) int64 [n]; ``types`` int32 [n]: 0 create time, 1 append time.

    ``at`` int64 and ``size`` int32 [n, 2]: the key's place in ``keys`` and the value's in ``values``, size -1 for null.
    """

    offsets: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]
    types: npt.NDArray[np.int32]
    keys: npt.NDArray[np.uint8]
    values: npt.NDArray[np.uint8]
    at: npt.NDArray[np.int64]
    size: npt.NDArray[np.int32]
    headers: HeaderTable

    def encoded(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Return the bytes of all records for the record digest (`record_digest.py`), and each record's end in them."""
        table = self.headers
        content = int(np.maximum(self.size, 0, dtype=np.int64).sum() + np.maximum(table.size, 0, dtype=np.int64).sum())
        count = len(self.offsets)
        target = np.empty(29 * count + 8 * len(table.size) + content, np.uint8)
        ends = np.empty(count, np.int64)
        bases = np.array([each.ctypes.data for each in (self.keys, self.values)], np.int64)
        header_bases = np.array([each.ctypes.data for each in (table.names, table.contents)], np.int64)
        kernels.encode_records(
            self.offsets, self.timestamps, self.types, bases, self.at, self.size, table.lists, header_bases, table.at,
            table.size, target.ctypes.data, ends,
        )  # fmt: skip
        return target, ends


def parts_of(records: RecordBlock | pa.RecordBatch) -> RecordParts:
    """Return the parts of a decoded block, or of rows in the schema of `record_columns.record_schema`, in any order of
    columns. Raises InvalidRequest for a missing column. A row's headers may be null.
    """
    if isinstance(records, RecordBlock):
        raw = records.raw
        times, kinds, table = records.timestamps, records.types, records.header_table()
        return RecordParts(records.offsets, times, kinds, raw, raw, records.at, records.size, table)
    return _of_arrow(_as_records(records))


def _as_records(batch: pa.RecordBatch) -> pa.RecordBatch:
    try:
        chosen = batch.select(RECORD_SCHEMA.names)
        return chosen if chosen.schema.types == RECORD_SCHEMA.types else chosen.cast(RECORD_SCHEMA)
    except (KeyError, pa.ArrowInvalid) as error:
        raise InvalidRequest("every column of a record is needed", reason=error) from error


def _of_arrow(batch: pa.RecordBatch) -> RecordParts:
    offsets = numbers(batch.column("offset"), np.int64).copy()  # kernels take no read-only arrays
    times = numbers(batch.column("timestamp"), np.int64).copy()
    (keys, key_at, key_size), (values, value_at, value_size) = map(_parts, (batch.column("key"), batch.column("value")))
    lists = batch.column("headers")
    flat = lists.flatten()
    (names, name_at, name_size), (contents, content_at, content_size) = map(_parts, (flat.field(0), flat.field(1)))
    counts = numbers(lists.value_lengths().fill_null(_ZERO), np.int32)
    table = HeaderTable(
        np.concatenate(([0], np.cumsum(counts))).astype(np.int32),
        np.empty(0, np.uint8),
        np.column_stack((name_at, content_at)),
        np.column_stack((name_size, content_size)),
        names,
        contents,
        0,
    )
    at, size = np.column_stack((key_at, value_at)), np.column_stack((key_size, value_size))
    kinds = numbers(batch.column("timestampType"), np.int32).copy()
    return RecordParts(offsets, times, kinds, keys, values, at, size, table)


def _parts(array: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Return the bytes of a binary or string array, and the position and size of each value; size -1 for null."""
    if not len(array):
        return np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int32)
    _, ends, data = array.buffers()
    bounds = np.frombuffer(ends, np.int32)[array.offset : array.offset + len(array) + 1]
    size = np.diff(bounds)
    if array.null_count:
        size[numbers(array.is_null().cast(pa.int8()), np.int8) != 0] = -1
    return np.frombuffer(data or b"", np.uint8), bounds[:-1].astype(np.int64), size
