"""Numbers of an Arrow column as they lie in its buffer, back again, and one for all its rows; and memory of Arrow's.

`to_numpy`, `numpy.asarray`, an index of numpy's and `pa.scalar` of a Python value import pandas where there is one: a
quarter of a second of a short command.
"""

from __future__ import annotations

import sys
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Number = TypeVar("Number", bound=np.integer[Any])


def empty(count: int, kind: type[np.generic]) -> npt.NDArray[Any]:
    """From Arrow's pool: it hands freed memory out again, without page faults for every piece."""
    return np.frombuffer(pa.allocate_buffer(count * np.dtype(kind).itemsize), kind)


def numbers(array: Any, kind: type[Number]) -> npt.NDArray[Number]:
    """Nothing is copied, and nothing may be written to. ``kind``: as wide as the column's; what is null is anything."""
    found = np.frombuffer(array.buffers()[1] or b"", kind)
    return found[array.offset : array.offset + len(array)]


def as_column(found: npt.NDArray[np.int64]) -> pa.Array:
    """The other way round; nothing is copied."""
    return pa.Array.from_buffers(pa.int64(), len(found), [None, pa.py_buffer(found)])


def constant(number: int, kind: pa.DataType) -> pa.Scalar:
    """A whole number of that width."""
    data = number.to_bytes(kind.bit_width // 8, sys.byteorder, signed=True)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(data)])[0]
