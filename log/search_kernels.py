"""Compiled search in unpacked records: a key, and bytes within a key, a value, or the name or value of a header.

`kernels.parse` has proved all bounds of these records.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .kernels import varint
from .lazy_kernel import byte_at, callee, kernel


@callee
def _finds(data: int, size: int, needle: int, back: Any, state: int) -> Any:
    """Return 1 if the data contains the bytes at ``needle`` (Knuth, Morris, Pratt): it reads each byte at most twice.

    ``back``: for each place in ``needle``, where to continue if the byte there differs.
    """
    length = back.shape[0]
    for place in range(data, data + size):
        byte = byte_at(place)
        while state > 0 and byte_at(needle + state) != byte:
            state = back[state]
        if byte_at(needle + state) == byte:
            state += 1
            if state == length:
                return 1
    return 0


@kernel("int64[::1](uint8[::1])")
def fall_back(needle: Any) -> Any:
    """Return the table ``back`` of `_finds`: at each place, the longest prefix that ends right before it."""
    back = np.zeros(needle.shape[0], np.int64)
    state = 0
    for place in range(2, needle.shape[0]):
        while state > 0 and needle[state] != needle[place - 1]:
            state = back[state]
        if needle[state] == needle[place - 1]:
            state += 1
        back[place] = state
    return back


@kernel(
    "void(int64, int64[:, ::1], int32[:, ::1], int64[::1], int32[::1], int64, int64, int64, int64[::1], uint8[::1])",
)
def match(
    raw: int, at: Any, size: Any, headers_at: Any, headers: Any, key: int, key_size: int, needle: int, back: Any,
    hits: Any,
) -> None:  # fmt: skip
    """Set ``hits`` [n] to 1 for each record that has the key at ``key`` (size -1: any), and the bytes at ``needle``
    within its key, its value, or the name or value of a header (an empty ``back``: any record).
    """
    limit = np.int64(0x7FFFFFFFFFFFFFFF)  # pass one proved that all headers end within their records
    for r in range(at.shape[0]):
        if key_size >= 0:
            if size[r, 0] != key_size:
                continue
            same = True
            for byte in range(key_size):
                if byte_at(raw + at[r, 0] + byte) != byte_at(key + byte):
                    same = False
                    break
            if not same:
                continue
        hit = np.int64(back.shape[0] == 0)
        for part in range(2):
            if hit == 0 and size[r, part] > 0:
                hit = _finds(raw + at[r, part], size[r, part], needle, back, 0)
        cursor = raw + headers_at[r]
        for _ in range(2 * headers[r]):
            if hit != 0:
                break
            length, cursor = varint(cursor, limit)
            length = max(length, 0)
            hit = _finds(cursor, length, needle, back, 0)
            cursor += length
        hits[r] = hit
