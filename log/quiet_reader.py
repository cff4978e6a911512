"""A file read once, beside a broker that lives on the same page cache: what was in it stays, what we brought in goes.

Before each read the kernel is asked which of its pages are in the cache (`page_cache.py`); the others are remembered as
ours, to be dropped once they are used. Reading ahead by the kernel is off (``POSIX_FADV_RANDOM``): its pages would look
as if they had been there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from ..state.errors import Unavailable
from .page_cache import PAGE, missing_pages

Missing = Callable[[int, int, int], list[tuple[int, int]]]
"""As `page_cache.missing_pages`."""


class QuietReader:
    """Of an open file of ``size`` bytes, named ``source`` in errors; one thread's at a time.

    Where nobody can tell what is in the cache, all that was read is dropped.
    """

    def __init__(self, descriptor: int, size: int, source: str, missing: Missing = missing_pages) -> None:
        self._descriptor, self._size, self._source, self._missing = descriptor, size, source, missing
        self._seen = 0
        self._ours: list[tuple[int, int]] = []
        with suppress(OSError):  # then what the kernel reads ahead may stay
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    def read(self, size: int, position: int) -> bytes:
        """As `read_into`."""
        window = memoryview(bytearray(size))
        return bytes(window[: self.read_into(window, position)])

    def read_into(self, window: memoryview, position: int) -> int:
        """Bytes read, fewer than asked only at the end of the file. Ask in ascending order; again is no matter.

        Raises Unavailable when the disk cannot be read.
        """
        try:
            return self._read_into(window, position)
        except OSError as error:
            raise Unavailable("the broker's disk cannot be read", file=self._source, reason=error.strerror) from error

    def _read_into(self, window: memoryview, position: int) -> int:
        filled = 0
        known = min(max(self._seen - position, 0), len(window))  # read before: whose it is was found out then
        if known:
            filled = self._plain(window[:known], position)
        if filled < known or filled == len(window):
            return filled
        begin, end = position + filled, min(position + len(window), self._size)
        self._ours += self._not_there(begin, end)
        filled += self._plain(window[filled:], begin)
        self._seen = max(self._seen, position + filled)
        return filled

    def drop(self, stop: int) -> None:
        """Lets go of what is ours below ``stop``; a page that goes on behind it is kept until that is used, too."""
        edge = stop if stop >= self._size else stop - stop % PAGE
        kept: list[tuple[int, int]] = []
        for begin, end in self._ours:
            if begin < edge:
                with suppress(OSError):  # a page that stays is no reason for a copy to fail
                    os.posix_fadvise(self._descriptor, begin, min(end, edge) - begin, os.POSIX_FADV_DONTNEED)
            if end > edge:
                kept.append((max(begin, edge), end))
        self._ours = kept

    def close(self) -> None:
        """Lets go of all that is ours. The file stays open: it is its opener's."""
        self.drop(self._size)

    def _not_there(self, begin: int, end: int) -> list[tuple[int, int]]:
        """What a read will bring in, in whole pages: dropping leaves half ones where they are."""
        try:
            found = self._missing(self._descriptor, begin, end)
        except OSError:
            found = [(begin - begin % PAGE, -(-end // PAGE) * PAGE)] if begin < end else []
        return [(first, min(last, self._size)) for first, last in found]

    def _plain(self, window: memoryview, position: int) -> int:
        filled = 0
        while filled < len(window):
            size = os.preadv(self._descriptor, [window[filled:]], position + filled)
            if not size:
                break
            filled += size
        return filled
