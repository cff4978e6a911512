"""Find the complete batches with the requested offsets in a window: bytes of the plain log that begin with a batch.

Headers are read, and no records. CRCs are compared only if the caller wants it.
"""

from __future__ import annotations

import struct
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..log.batch import CONTROL, HEADER_BYTES, TRANSACTIONAL, BatchHeader, iter_batches, read_header
from ..runtime.extras import columns_installed
from ..state.errors import CorruptData
from ..state.offsets import Offset, OffsetRange
from .batch_order import NO_OFFSET, BatchOrder

_ROWS, _FEW = 4096, 8
"""The most batches handled together, and the number up to which it is faster to handle them one by one."""
_MANY = 1024
"""From this number of batches in one window on, it is worth loading numba, which takes half a second, once."""
BATCH_PREFIX = struct.Struct(">qi")
"""Base offset, and the number of bytes after these two fields: enough to know where a batch ends."""
_HEADER = struct.Struct(">qiib4xhi30xi")
"""Base offset, length, leader epoch, magic, attributes, last offset delta and record count of a batch."""
POSITION, BASE, SIZE, ATTRIBUTES, LAST, EPOCH = range(6)
"""Columns of the table that `headers_of` returns."""
_KERNELS = f"{__package__.rpartition('.')[0]}.log.kernels"


def batch_size(window: bytes | memoryview) -> int:
    """Return the size in bytes that the header of the window's first batch states."""
    size: int = BATCH_PREFIX.size + BATCH_PREFIX.unpack_from(window)[1]
    return size


@dataclass(frozen=True, slots=True)
class WindowBatches:
    """``data``: the requested batches of a window, which end at ``stop``. ``finished``: no later batch is requested.

    ``of_transactions``: the transactional batches among them, and the markers. ``after``: the last offset of all of the
    window's batches, or -1.
    """

    data: memoryview
    stop: int
    first: BatchHeader | None
    last: BatchHeader | None
    finished: bool
    of_transactions: Sequence[BatchHeader]
    after: int


def batches_of(
    window: memoryview,
    source: str,
    position: int,
    offsets: OffsetRange,
    order: BatchOrder,
    *,
    verify_crc: bool = False,
    check_tail: bool = True,
) -> WindowBatches:
    """Return the batches. ``verify_crc``: compare the CRCs of those requested; else a decoder does. ``check_tail``:
    call `require_cut_off` for the bytes after them; else the caller does.
    """
    rows = headers_of(window, offsets.end)
    lasts, positions = rows[:, LAST], rows[:, POSITION]
    many = len(rows) > _FEW
    if not (many and order.holds(positions + position, rows[:, BASE], lasts, rows[:, SIZE], rows[:, EPOCH])):
        for at in positions.tolist():  # one of many raises the reason
            order.check(read_header(window, at, source, position))
    ends = int(np.searchsorted(lasts, offsets.end))
    finished = ends < len(rows)
    at, after = (int(rows[-1, POSITION] + rows[-1, SIZE]), int(lasts[-1])) if len(rows) else (0, -1)
    if check_tail and not finished:
        require_cut_off(window[at:], source, position + at, after)
    count = ends + int(finished and rows[ends, BASE] <= offsets.end)
    stop = int(positions[count - 1] + rows[count - 1, SIZE]) if count else 0
    requested = rows[int(np.searchsorted(lasts, offsets.start)) : count]
    if not len(requested):
        return WindowBatches(window[:0], stop, None, None, finished, (), after)
    start = int(requested[0, POSITION])
    if verify_crc:
        deque(iter_batches(window[start:stop], source=source, position=position + start), maxlen=0)
    of_one = (requested[:, ATTRIBUTES] & (TRANSACTIONAL | CONTROL)) != 0
    first, last, *of_transactions = (
        read_header(window, at, source, position)
        for at in (start, int(requested[-1, POSITION]), *requested[of_one, POSITION].tolist())
    )
    return WindowBatches(window[start:stop], stop, first, last, finished, of_transactions, after)


def headers_of(window: memoryview, final: Offset) -> npt.NDArray[np.int64]:
    """Return an int64 table [n, 6] of the complete batches, up to the first that ends at ``final`` or later.

    The kernel is used if it is loaded or worth loading. In the proxy, producers' usual batches are never worth it.
    """
    if _KERNELS not in sys.modules:
        walked = _walk(window, final)
        if len(walked) < _MANY or not columns_installed():
            return np.array(walked, np.int64).reshape(-1, EPOCH + 1)
    from ..log import kernels

    address, at, after = np.frombuffer(window, np.uint8).ctypes.data, 0, -1
    tables = list[npt.NDArray[np.int64]]()
    while not tables or (len(tables[-1]) == _ROWS and after < final):
        table = np.empty((_ROWS, kernels.HEADER_COLUMNS), np.int64)
        count, at, after = kernels.scan(address, len(window), at, after, 0, table)
        tables.append(table[:count])
    columns = (kernels.POSITION, kernels.BASE, kernels.SIZE, kernels.ATTRIBUTES, kernels.LAST, kernels.EPOCH)
    rows = np.concatenate(tables)[:, columns]
    return rows[: int(np.searchsorted(rows[:, LAST], final)) + 1]


def _walk(window: memoryview, final: Offset) -> list[tuple[int, ...]]:
    """Return the rows of `headers_of`. It stops before anything that is not a good batch, as `kernels.scan` does."""
    rows = list[tuple[int, ...]]()
    at, after, size, unpack = 0, -1, len(window), _HEADER.unpack_from
    while size - at >= HEADER_BYTES and after < final:
        base, length, epoch, magic, attributes, delta, count = unpack(window, at)
        if magic != 2 or not HEADER_BYTES <= length + BATCH_PREFIX.size <= size - at or attributes & 7 > 4:
            break
        if base <= after or not 0 <= count <= delta + 1 or delta < 0 or base > NO_OFFSET - delta:
            break
        after = base + delta
        rows.append((at, base, length + BATCH_PREFIX.size, attributes, after, epoch))
        at += length + BATCH_PREFIX.size
    return rows


def require_cut_off(tail: memoryview, source: str, position: int, after: int) -> None:
    """Raises CorruptData if the bytes after the batches are neither a batch nor the beginning of a batch.

    ``after``: the last offset of the batches before."""
    batches = iter_batches(tail, source=source, position=position, verify_crc=False, partial_tail_ok=True, after=after)
    if next(batches, None) is not None:
        raise CorruptData("not a record batch", file=source, position=position)
