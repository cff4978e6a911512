"""Configure which freed buffers the allocator of glibc returns to the system. Other C libraries stay as they are.

After the first large buffer is freed, glibc takes later ones, up to 32 MiB, from heaps (one for each thread). There
they leave holes and stay in memory: eight copies at once held 115 MiB more than they had allocated. glibc also returns
the end of a heap once twice the size of that first buffer is free, and then requests it again page by page: a read of
1 MiB from the chunk cache cost five times its copying.

    agent            few buffers, long in use    large ones have their own pages, which are returned when freed
    gateway, proxy   many, for a moment each     those of reads come from heaps, which keep up to `KEPT_BYTES` each;
                                                 chunks of the cache (4 MiB by default) have their own pages

The decision is in `docs/decisions/0021-large-buffers-go-back.md`.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
LARGE_BYTES = 512 * 1024
"""A buffer of this size or more has its own pages, which are returned to the system when it is freed. The pieces of a
copy are smaller: new pages for each of them would cost a third of the copy's processor time.
"""
LARGER_THAN_READS = 4 * 1024 * 1024
KEPT_BYTES = 64 * 1024 * 1024
"""Most free bytes at the end of a heap that are kept."""
HEAPS = 2


def return_large_buffers() -> bool:
    """Return large buffers to the system when freed. Call it before threads start. Returns False without glibc."""
    return _told({_M_MMAP_THRESHOLD: LARGE_BYTES, _M_ARENA_MAX: HEAPS})


def keep_buffers_of_reads() -> bool:
    """Keep up to `HEAPS` x `KEPT_BYTES` for reads. Time of the call and result: as `return_large_buffers`."""
    options = {_M_MMAP_THRESHOLD: LARGER_THAN_READS, _M_TRIM_THRESHOLD: KEPT_BYTES, _M_ARENA_MAX: HEAPS}
    return _told(options)


def _told(options: dict[int, int]) -> bool:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    mallopt.argtypes, mallopt.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    return all([bool(mallopt(option, value)) for option, value in options.items()])
