"""Which pages of a file are in the page cache: mincore(2)."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path
from typing import Any

PAGE = mmap.PAGESIZE
_LIBC: Any = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


def resident(path: Path) -> list[bool]:
    """Return for every page whether it is in the page cache. Looking brings no page in."""
    size = path.stat().st_size
    pages = ctypes.create_string_buffer(-(-size // PAGE))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        address = _LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        assert address != ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno())
        failed = _LIBC.mincore(address, size, pages)
        _LIBC.munmap(address, size)
        assert not failed, os.strerror(ctypes.get_errno())
    finally:
        os.close(descriptor)
    return [bool(page & 1) for page in pages.raw]


def make_cold(path: Path) -> None:
    """Drop the file from the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert not any(resident(path))


def make_hot(path: Path, begin: int, end: int) -> None:
    """Bring in these bytes and no others, whatever else reads: the kernel must not read ahead."""
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        file.seek(begin)
        left = end - begin
        while left > 0:
            left -= len(file.read(min(left, 1 << 20)))
