"""An object of a `DirectoryStore` that is read window by window."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager

from ..state.errors import TierstateError
from ..state.offsets import ByteRange
from .object_store import MIB, beyond_end

AHEAD_BYTES = 8 * MIB
"""Distance from the start of a read to the bytes that the kernel is asked to read ahead."""


class OpenObject:
    """An object whose file is open as long as this value is referenced. Thread-safe.

    The file is opened once and not for every window. Each system call hands the GIL to the thread that decodes the
    previous window, and getting the GIL back takes longer than the call.

    ``OpenObject`` closes ``descriptor``. ``typed`` translates OSErrors. ``shrank`` makes the error for a shorter file.
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
        """Fill ``target`` from ``start`` on and return the number of bytes read, which is smaller at the object's end.

        The kernel also reads later bytes ahead into the page cache. The file is not mapped, because reading a mapping
        of a file that shrank kills the process. Raises RangeNotSatisfiable.
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
