"""Read and build Arrow columns of integers without copying them, and take memory from Arrow's pool.

`to_numpy`, `numpy.asarray`, indexing with a NumPy number and `pa.scalar` of a Python value import pandas if it is
installed, which costs a short command a quarter of a second.
"""

from __future__ import annotations

import sys
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
