"""Configure which buffers the C library's allocator gives back. Linux with glibc; elsewhere this does nothing.

By itself glibc learns from the first large buffer that is freed to take the next ones, up to 32 MiB, from heaps, one
for each thread, where they leave holes and stay: eight copies at once held 115 MiB more than they had allocated. The
end of a heap also goes back as soon as twice that is free, and is then requested again page by page: a read of 1 MiB
from the chunk cache cost five times its copying.

    agent            few buffers, long in use    large ones have pages of their own, which go back with them
    gateway, proxy   many, for a moment each     those of reads come from heaps, which keep up to `KEPT_BYTES` each;
                                                 chunks of the cache (4 MiB by default) have pages of their own

`docs/decisions/0021-large-buffers-go-back.md`.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
LARGE_BYTES = 512 * 1024
"""A buffer of this size or more has pages of its own, which go back with it. The pieces of a copy are smaller: new
pages for each of them would cost a third of the copy's processor time.
"""
LARGER_THAN_READS = 4 * 1024 * 1024
KEPT_BYTES = 64 * 1024 * 1024
"""Free bytes at the end of a heap that are kept."""
HEAPS = 2


def return_large_buffers() -> bool:
    """Give large buffers back when freed. Call it before the process has threads. Return False without glibc."""
    return _told({_M_MMAP_THRESHOLD: LARGE_BYTES, _M_ARENA_MAX: HEAPS})


def keep_buffers_of_reads() -> bool:
    """Keep up to `HEAPS` x `KEPT_BYTES` for reads. Call and result are as for `return_large_buffers`."""
    options = {_M_MMAP_THRESHOLD: LARGER_THAN_READS, _M_TRIM_THRESHOLD: KEPT_BYTES, _M_ARENA_MAX: HEAPS}
    return _told(options)


def _told(options: dict[int, int]) -> bool:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    mallopt.argtypes, mallopt.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    return all([bool(mallopt(option, value)) for option, value in options.items()])
