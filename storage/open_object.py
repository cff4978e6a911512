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
"""So far behind what is read the kernel is told that it will be."""


class OpenObject:
    """One object, open as long as somebody holds this. Thread-safe.

    Opened once and not for every window: each call to the system hands the GIL to whoever decodes the window before,
    and to come back by it takes longer than the call.

    ``descriptor``: its own from now on. ``typed``: around what the system may refuse. ``shrank``: the error for it.
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
        """`get_range` into the caller's memory; how many bytes. What follows is read into the page cache meanwhile.

        Not by mapping the file: it may shrink, and then whoever looks at it is killed.
        """
        if start >= self._size:
            raise beyond_end(self._key, ByteRange(start, start + len(target)), self._size)
        wanted, found = min(len(target), self._size - start), 0
        while found < wanted:
            with self._typed():
                read = os.preadv(self._descriptor, [target[found:wanted]], start + found)
            if not read:
                raise self._shrank()
            found += read
        with self._typed():
            os.posix_fadvise(self._descriptor, start + AHEAD_BYTES, wanted, os.POSIX_FADV_WILLNEED)
        return found
