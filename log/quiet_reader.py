"""Read a file once without disturbing the page cache of a broker on the same host.

Before each read, mincore(2) shows which pages of the range are not in the cache. The read loads these pages, so the
reader drops them after use. The kernel's readahead is off (``POSIX_FADV_RANDOM``), because the pages that it loads
would seem to have been in the cache before. A read with ``RWF_NOWAIT`` is no alternative: since Linux 6 such a read
starts to read from the disk. If the disk is fast enough, it returns pages that it has just loaded (seen on 6.18).
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..state.errors import Unavailable

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


Missing = Callable[[int, int, int], list[tuple[int, int]]]
"""The signature of `missing_pages`."""


class QuietReader:
    """Reads an open file of ``size`` bytes, named ``source`` in errors. One thread at a time may use it.

    If the system cannot report which pages are in the cache, the reader drops all pages that it read.
    """

    def __init__(self, descriptor: int, size: int, source: str, missing: Missing = missing_pages) -> None:
        self._descriptor, self._size, self._source, self._missing = descriptor, size, source, missing
        self._seen = 0
        self._ours: list[tuple[int, int]] = []
        with suppress(OSError):  # after an error, pages that the kernel reads ahead may stay in the cache
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    def read(self, size: int, position: int) -> bytes:
        """Return up to ``size`` bytes from ``position`` on. The rules of `read_into` apply."""
        window = memoryview(bytearray(size))
        return bytes(window[: self.read_into(window, position)])

    def read_into(self, window: memoryview, position: int) -> int:
        """Fill ``window`` from ``position`` on, and return the number of bytes read: fewer only at the file's end.

        Callers read forward, and may read bytes again. Raises Unavailable if the disk cannot be read.
        """
        try:
            return self._read_into(window, position)
        except OSError as error:
            raise Unavailable("the broker's disk cannot be read", file=self._source, reason=error.strerror) from error

    def _read_into(self, window: memoryview, position: int) -> int:
        filled = 0
        repeated = min(max(self._seen - position, 0), len(window))  # read before: `_ours` lists the pages it loaded
        if repeated:
            filled = self._plain(window[:repeated], position)
        if filled < repeated or filled == len(window):
            return filled
        begin, end = position + filled, min(position + len(window), self._size)
        self._ours += self._not_there(begin, end)
        filled += self._plain(window[filled:], begin)
        self._seen = max(self._seen, position + filled)
        return filled

    def drop(self, stop: int) -> None:
        """Drop the pages below byte ``stop`` that this reader loaded. A page that extends beyond ``stop`` is kept."""
        edge = stop if stop >= self._size else stop - stop % PAGE
        kept: list[tuple[int, int]] = []
        for begin, end in self._ours:
            if begin < edge:
                with suppress(OSError):  # a page that cannot be dropped must not make a copy fail
                    os.posix_fadvise(self._descriptor, begin, min(end, edge) - begin, os.POSIX_FADV_DONTNEED)
            if end > edge:
                kept.append((max(begin, edge), end))
        self._ours = kept

    def close(self) -> None:
        """Drop all pages that this reader loaded. The file stays open, because it belongs to the caller."""
        self.drop(self._size)

    def _not_there(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Return the byte ranges of the pages that a read will load, page-aligned as dropping requires."""
        try:
            missing = self._missing(self._descriptor, begin, end)
        except OSError:
            missing = [(begin - begin % PAGE, -(-end // PAGE) * PAGE)] if begin < end else []
        return [(first, min(last, self._size)) for first, last in missing]

    def _plain(self, window: memoryview, position: int) -> int:
        filled = 0
        while filled < len(window):
            size = os.preadv(self._descriptor, [window[filled:]], position + filled)
            if not size:
                break
            filled += size
        return filled
