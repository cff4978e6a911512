"""Names and types of the columns of decoded records, and access to Arrow columns of integers without a copy.

Planners read no records, so this module loads no kernels. `to_numpy`, `numpy.asarray`, indexing with a NumPy number and
`pa.scalar` of a Python value import pandas if it is installed, which costs a short command a quarter of a second.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..state.errors import InvalidRequest

HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
FIELDS = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
}
"""The columns of Spark's Kafka source, in its order, all nullable. Times are Kafka's own milliseconds."""
MICROSECONDS = pa.timestamp("us", tz="UTC")
"""The unit of times in Spark and Iceberg, which have no milliseconds."""


def record_schema(*, columns: Sequence[str] | None = None, milliseconds: bool = False) -> pa.Schema:
    """Return the Arrow schema of decoded records. Raises InvalidRequest for an unknown column.

    ``milliseconds``: keep Kafka's unit of times, for all readers except Spark and tables. Otherwise times are
    `MICROSECONDS`, and times outside ± `record_block.MAX_MILLIS` become the nearer of these two bounds.
    """
    kinds = FIELDS if milliseconds else FIELDS | {"timestamp": MICROSECONDS}
    names = list(FIELDS if columns is None else columns)
    if unknown := [name for name in names if name not in FIELDS]:
        raise InvalidRequest("unknown column", column=unknown[0], columns=",".join(FIELDS))
    return pa.schema([pa.field(name, kinds[name]) for name in names])


RECORD_SCHEMA = record_schema(milliseconds=True)
"""All columns, with Kafka's milliseconds."""


Number = TypeVar("Number", bound=np.integer[Any])


def empty(count: int, kind: type[np.generic]) -> npt.NDArray[Any]:
    """Return an uninitialised array in Arrow's memory pool. The pool reuses freed memory, which saves page faults."""
    return np.frombuffer(pa.allocate_buffer(count * np.dtype(kind).itemsize), kind)


def numbers(array: Any, kind: type[Number]) -> npt.NDArray[Number]:
    """Return a read-only view of a column's values. ``kind`` has the column's width; a null's number is undefined."""
    values = np.frombuffer(array.buffers()[1] or b"", kind)
    return values[array.offset : array.offset + len(array)]


def as_column(integers: npt.NDArray[np.int64]) -> pa.Array:
    """Return an Arrow column over the numbers, without a copy."""
    return pa.Array.from_buffers(pa.int64(), len(integers), [None, pa.py_buffer(integers)])


def constant(number: int, kind: pa.DataType) -> pa.Scalar:
    """Return a scalar of the integer type ``kind``."""
    data = number.to_bytes(kind.bit_width // 8, sys.byteorder, signed=True)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(data)])[0]
