"""Writes a new file without the page cache (``O_DIRECT``), for the sake of a broker on the same machine.

In the page cache, the file's pages would evict the broker's, and the kernel would write them to the disk in bursts: a
copy of 50 MB/s made the p99 latency of a producer 7 times as long (decision 0025). Data shorter than `BLOCK_BYTES`, and
the end of longer data, is written through the cache.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os

from .object_store import MIB, Data

BLOCK_BYTES = MIB
"""Size of one write request to the disk, and of the buffer of each writer."""

_KEPT = 8
_free: list[mmap.mmap] = []
"""Buffers for the next writers, at most `_KEPT`. The page faults of a new one cost more than a small object."""
_NOT_HERE = {errno.EINVAL, errno.EOPNOTSUPP}


class DirectFile:
    """A file that is being written. ``descriptor`` refers to an empty file; the caller closes it. Raises OSError.

    If the file system lacks direct writes, or requires another alignment, all data is written through the cache.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._block: mmap.mmap | None = None  # whole pages, which direct writes require
        self._filled = 0
        self._can = True

    def write(self, data: Data) -> int:
        """Write all of ``data`` and return its size in bytes. The data is on the disk only after `sync`."""
        rest = memoryview(data).cast("B")
        size = len(rest)
        if self._block is None:
            self._block = _block()
        while rest:
            count = min(len(rest), BLOCK_BYTES - self._filled)
            self._block[self._filled : self._filled + count] = rest[:count]
            self._filled, rest = self._filled + count, rest[count:]
            if self._filled == BLOCK_BYTES:
                self._write_block()
        return size

    def sync(self) -> None:
        """Write the rest and fsync the file. Do not call `write` afterwards."""
        if self._block is not None:
            self._through_cache(memoryview(self._block)[: self._filled])
            if len(_free) < _KEPT:
                _free.append(self._block)
            self._block = None
        os.fsync(self._descriptor)

    def _write_block(self) -> None:
        assert self._block is not None
        self._filled = 0
        block = memoryview(self._block)
        if self._can:
            try:
                self._set_direct(True)
                block = block[os.write(self._descriptor, block) :]
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                self._can = False
        if block:  # not all was written, so the position may be between two blocks of the disk
            self._can = False
            self._through_cache(block)

    def _through_cache(self, data: memoryview) -> None:
        self._set_direct(False)
        while data:
            data = data[os.write(self._descriptor, data) :]

    def _set_direct(self, direct: bool) -> None:
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        if bool(flags & os.O_DIRECT) != direct:
            fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags ^ os.O_DIRECT)


def _block() -> mmap.mmap:
    try:
        return _free.pop()
    except IndexError:
        return mmap.mmap(-1, BLOCK_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # a forked process has its own
