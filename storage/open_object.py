"""An object of a folder that is read window by window."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager

from ..state.errors import TierstateError
from ..state.offsets import ByteRange
from .object_store import MIB, beyond_end

AHEAD_BYTES = 8 * MIB
"""Distance from a read to the bytes that the kernel is told to read ahead."""


class OpenObject:
    """One object, open as long as this value is referenced. Thread-safe.

    It is opened once and not for every window: each system call hands the GIL to the thread that decodes the previous
    window, and getting the GIL back takes longer than the call.

    ``descriptor`` is closed here. ``typed`` translates OSErrors. ``shrank`` makes the error for a file that shrank.
    """

    def __init__(
        self,
        key: str,
        descriptor: int,
        size: int,
        typed: Callable[[], AbstractContextManager[None]],
        shrank: Callable[[], TierstateError],
    ) -> None:
        self._key, self._descriptor, self._size = key, descriptor, size
        self._typed, self._shrank = typed, shrank
        weakref.finalize(self, os.close, descriptor)

    def read_into(self, start: int, target: memoryview) -> int:
        """Read a range into ``target`` and return its bytes. The kernel reads the following bytes into the page cache.

        The file is not mapped: it may shrink, and then the process that reads the mapping would be killed.
        """
        if start >= self._size:
            raise beyond_end(self._key, ByteRange(start, start + len(target)), self._size)
        size, filled = min(len(target), self._size - start), 0
        while filled < size:
            with self._typed():
                count = os.preadv(self._descriptor, [target[filled:size]], start + filled)
            if not count:
                raise self._shrank()
            filled += count
        with self._typed():
            os.posix_fadvise(self._descriptor, start + AHEAD_BYTES, size, os.POSIX_FADV_WILLNEED)
        return filled
