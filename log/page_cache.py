"""Report which pages of a file are in the page cache. mincore(2) does not load pages.

A read with ``RWF_NOWAIT`` is no alternative: since Linux 6 such a read starts to read from the disk. If the disk is
fast enough, the read returns pages that it has just loaded (observed on 6.18).
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

PAGE = mmap.PAGESIZE
_FAILED = ctypes.c_void_p(-1).value
_libc: Any = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


def missing_pages(descriptor: int, begin: int, end: int) -> list[tuple[int, int]]:
    """Return byte ranges ``(start, stop)`` of the uncached pages that overlap ``[begin, end)``, in ascending order.

    Ranges are page-aligned, and adjacent pages are merged. ``[begin, end)`` must lie within the file. If a process
    neither owns the file nor may write to it, Linux reports all pages as cached. Raises OSError if a system call fails.
    """
    if begin >= end:
        return []
    first = begin - begin % PAGE
    pages = -(-(end - first) // PAGE)
    states = ctypes.create_string_buffer(pages)
    address = _libc.mmap(None, end - first, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, first)
    if address == _FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    try:
        if _libc.mincore(address, end - first, states):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        _libc.munmap(address, end - first)
    runs: list[tuple[int, int]] = []
    for number, state in enumerate(states.raw):
        if state & 1:
            continue
        at = first + number * PAGE
        if runs and runs[-1][1] == at:
            runs[-1] = runs[-1][0], at + PAGE
        else:
            runs.append((at, at + PAGE))
    return runs
