"""The C library's allocator, told to give large buffers back. Linux with glibc; nowhere else does this do anything.

By itself glibc learns from the first large buffer that is freed to take the next ones, up to 32 MiB, from heaps, one
for each thread, where they leave holes and stay: eight copies at once held 115 MiB more than they had allocated.
`docs/decisions/0021-large-buffers-go-back.md`.
"""

from __future__ import annotations

import ctypes

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
LARGE_BYTES = 512 * 1024
"""From so many bytes on, a buffer has pages of its own, and they go back with it. The pieces of a copy are smaller:
pages that are new for each of them would cost a third of the copy's processor time.
"""
HEAPS = 2


def return_large_buffers() -> bool:
    """At the start of a process, before it has threads. False where there is no such allocator: nothing was done."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    mallopt.argtypes, mallopt.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    return bool(mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)) and bool(mallopt(_M_ARENA_MAX, HEAPS))
