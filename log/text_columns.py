"""Print records as text. Columns are joined by Arrow, not row by row in Python.

Memory: the text of `SLICE_BYTES` of records, or of one larger record. Escaped text is up to six times as long.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SLICE_BYTES = 1 << 20
TEXT = pa.large_binary()
"""The type of every column here. Its offsets are int64, because a batch of 512 MiB takes six times that if escaped."""

Part: TypeAlias = "pa.Array | bytes"
"""A column of `TEXT`, or bytes that are the same in every row."""


def same(text: bytes) -> pa.Scalar:
    """Return a scalar for the same bytes in every row. `pa.scalar` is not used, because it may import pandas."""
    ends, data = pa.py_buffer(struct.pack("=qq", 0, len(text))), pa.py_buffer(text)
    return pa.Array.from_buffers(TEXT, 1, [None, ends, data])[0]


_NOTHING, _NULL, _COMMA = same(b""), same(b"NULL"), same(b",")


def slices(batch: pa.RecordBatch, slice_bytes: int = SLICE_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield the rows in slices of about ``slice_bytes`` bytes, without a copy."""
    rows = max(1, batch.num_rows * slice_bytes // max(batch.nbytes, 1))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def joined(parts: Sequence[Part]) -> pa.Array:
    """Return a column that joins the parts of each row. A null adds no bytes."""
    columns = [same(part) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*columns, _NOTHING, null_handling="replace", null_replacement=b"")


def printed(parts: Sequence[Part]) -> bytes:
    """Return the joined text of all rows."""
    rows = joined(parts)
    if not len(rows):
        return b""
    _, ends, data = rows.buffers()
    return memoryview(data)[: int(np.frombuffer(ends, np.int64)[len(rows)])].tobytes()


def decimal(numbers: pa.Array) -> pa.Array:
    """Return integers as decimal text."""
    return numbers.cast(pa.large_string()).cast(TEXT)


def listed(lists: pa.Array, elements: pa.Array) -> pa.Array:
    """Return each row's list as text with commas. ``elements`` holds the text of the elements of all ``lists``."""
    offsets = lists.offsets
    return pc.binary_join(pa.ListArray.from_arrays(pc.subtract(offsets, offsets[0]), elements), _COMMA)


def _headers(rows: pa.RecordBatch) -> pa.Array:
    """Return ``name=value,name=value``, as kcat prints headers; a null value is ``NULL``."""
    headers = rows.column("headers")
    name, value = headers.flatten().flatten()
    return listed(headers, joined([name.cast(TEXT), b"=", pc.fill_null(value.cast(TEXT), _NULL)]))


FIELDS: Mapping[str, Callable[[pa.RecordBatch], pa.Array]] = {
    "t": lambda rows: rows.column("topic").cast(TEXT),
    "p": lambda rows: decimal(rows.column("partition")),
    "o": lambda rows: decimal(rows.column("offset")),
    "k": lambda rows: rows.column("key").cast(TEXT),
    "s": lambda rows: rows.column("value").cast(TEXT),
    "T": lambda rows: decimal(rows.column("timestamp").cast(pa.int64())),
    "h": _headers,
}
"""The columns of kcat's formats ``%t``, ``%p``, …. A null is printed as no bytes."""
