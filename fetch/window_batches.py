"""Of a window, bytes of the plain log that begin with a batch: the whole batches that hold what was asked for.

Headers are looked at, not records; CRCs are whoever's who decodes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..log.batch import CONTROL, TRANSACTIONAL, BatchHeader, iter_batches, read_header
from ..state.errors import CorruptData
from ..state.offsets import Offset, OffsetRange
from .batch_order import BatchOrder

_ROWS, _FEW = 4096, 8
"""Batches looked at together; and those that are looked at one by one, which is faster."""
BATCH_PREFIX = struct.Struct(">qi")
"""Base offset, and the length of what follows it: enough to know where a batch ends."""


def batch_size(window: bytes | memoryview) -> int:
    """That its first batch says to have."""
    size: int = BATCH_PREFIX.size + BATCH_PREFIX.unpack_from(window)[1]
    return size


def holds_a_batch(window: bytes | memoryview) -> bool:
    return len(window) >= BATCH_PREFIX.size and BATCH_PREFIX.size < batch_size(window) <= len(window)


@dataclass(frozen=True, slots=True)
class WindowBatches:
    """Of a window: ``data``, the batches wanted, which end at ``stop``; ``finished``: the next batch is behind them.

    ``of_transactions``: those of them that are of one, and markers.
    """

    data: memoryview
    stop: int
    first: BatchHeader | None
    last: BatchHeader | None
    finished: bool
    of_transactions: Sequence[BatchHeader]


def batches_of(
    window: memoryview, source: str, position: int, offsets: OffsetRange, order: BatchOrder
) -> WindowBatches:
    # not at the top: numba takes longer to load than all else, and who plans or looks takes no batches
    from ..log import kernels

    rows = headers_of(window, offsets.end)
    lasts, positions = rows[:, kernels.LAST], rows[:, kernels.POSITION]
    many = len(rows) > _FEW
    if not (many and order.holds(positions + position, rows[:, kernels.BASE], lasts, rows[:, kernels.SIZE])):
        for at in positions.tolist():  # of many, one says what is wrong
            order.check(read_header(window, at, source, position))
    ends = int(np.searchsorted(lasts, offsets.end))
    finished = ends < len(rows)
    if not finished:
        _require_cut_off(window, rows, source, position)
    count = ends + int(finished and rows[ends, kernels.BASE] <= offsets.end)
    stop = int(positions[count - 1] + rows[count - 1, kernels.SIZE]) if count else 0
    wanted = rows[int(np.searchsorted(lasts, offsets.start)) : count]
    if not len(wanted):
        return WindowBatches(window[:0], stop, None, None, finished, ())
    start = int(wanted[0, kernels.POSITION])
    of_one = (wanted[:, kernels.ATTRIBUTES] & (TRANSACTIONAL | CONTROL)) != 0
    first, last, *of_transactions = (
        read_header(window, at, source, position)
        for at in (start, int(wanted[-1, kernels.POSITION]), *wanted[of_one, kernels.POSITION].tolist())
    )
    return WindowBatches(window[start:stop], stop, first, last, finished, of_transactions)


def headers_of(window: memoryview, final: Offset) -> npt.NDArray[np.int64]:
    """Of the whole batches (`kernels.HEADER_COLUMNS`), up to the first that ends at ``final`` or later."""
    from ..log import kernels

    address, at, after = np.frombuffer(window, np.uint8).ctypes.data, 0, -1
    found = list[npt.NDArray[np.int64]]()
    while not found or (len(found[-1]) == _ROWS and after < final):
        table = np.empty((_ROWS, kernels.HEADER_COLUMNS), np.int64)
        count, at, after = kernels.scan(address, len(window), at, after, 0, table)
        found.append(table[:count])
    rows = found[0] if len(found) == 1 else np.concatenate(found)
    return rows[: int(np.searchsorted(rows[:, kernels.LAST], final)) + 1]


def _require_cut_off(window: memoryview, rows: npt.NDArray[np.int64], source: str, position: int) -> None:
    """Raises CorruptData where what follows these batches is none, and not the beginning of one."""
    from ..log import kernels

    at, after = 0, -1
    if len(rows):
        at, after = int(rows[-1, kernels.POSITION] + rows[-1, kernels.SIZE]), int(rows[-1, kernels.LAST])
    if at == len(window):
        return
    tail = iter_batches(
        window[at:], source=source, position=position + at, verify_crc=False, partial_tail_ok=True, after=after
    )
    if next(tail, None) is not None:
        raise CorruptData("not a record batch", file=source, position=position + at)
