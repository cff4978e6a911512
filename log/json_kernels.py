"""Text as JSON strings, compiled: the two passes over a column, measure and fill."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from numba.core import types

from .kernels import kernel

_BYTES: Any = types.Array(types.uint8, 1, "C", readonly=True)
_NUMBERS: Any = types.Array(types.int64, 1, "C", readonly=True)


def _escapes() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """What JSON writes for each byte, [256, 6], and how long that is; taken from orjson."""
    text, size = np.zeros((256, 6), np.uint8), np.ones(256, np.uint8)
    text[:, 0] = np.arange(256)
    for code in (*range(32), ord('"'), ord("\\")):
        escaped = orjson.dumps(chr(code))[1:-1]
        text[code, : len(escaped)], size[code] = list(escaped), len(escaped)
    return text, size


_TEXT, _SIZE = _escapes()
_NULL = np.array(list(b"null"), np.uint8)


@kernel(types.int64(_BYTES, _NUMBERS, _BYTES))
def quoted_size(data: Any, ends: Any, valid: Any) -> int:
    """Bytes that `quote` will write. ``ends`` [n + 1]: where each row begins in ``data``; ``valid`` [n]: 0 for null."""
    total = 0
    for row in range(valid.shape[0]):
        if valid[row]:
            total += 2
            for at in range(ends[row], ends[row + 1]):
                total += _SIZE[data[at]]
        else:
            total += 4
    return total


@kernel(types.void(_BYTES, _NUMBERS, _BYTES, types.uint8[::1], types.int64[::1]))
def quote(data: Any, ends: Any, valid: Any, target: Any, reached: Any) -> None:
    """Into ``target``; ``reached`` [n + 1]: where each row begins there. Null is ``null``."""
    to = 0
    reached[0] = 0
    for row in range(valid.shape[0]):
        if valid[row]:
            target[to] = 34
            to += 1
            for at in range(ends[row], ends[row + 1]):
                byte = data[at]
                target[to] = byte
                if _SIZE[byte] == 1:
                    to += 1
                else:
                    for part in range(_SIZE[byte]):
                        target[to + part] = _TEXT[byte, part]
                    to += _SIZE[byte]
            target[to] = 34
            to += 1
        else:
            for part in range(4):
                target[to + part] = _NULL[part]
            to += 4
        reached[row + 1] = to
