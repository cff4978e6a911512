"""Read a file once without disturbing the page cache of a broker on the same host: our pages are dropped.

Before each read the kernel is asked which of its pages are in the cache (`page_cache.py`). We remember the others as
ours, and drop them once they are used. Reading ahead by the kernel is off (``POSIX_FADV_RANDOM``): pages that it brings
in would look as if they had been there before.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from ..state.errors import Unavailable
from .page_cache import PAGE, missing_pages

Missing = Callable[[int, int, int], list[tuple[int, int]]]
"""The signature of `page_cache.missing_pages`."""


class QuietReader:
    """Reads an open file of ``size`` bytes, named ``source`` in errors. One thread at a time may use it.

    If the system cannot report what is in the cache, all pages that were read are dropped.
    """

    def __init__(self, descriptor: int, size: int, source: str, missing: Missing = missing_pages) -> None:
        self._descriptor, self._size, self._source, self._missing = descriptor, size, source, missing
        self._seen = 0
        self._ours: list[tuple[int, int]] = []
        with suppress(OSError):  # then pages that the kernel reads ahead may stay
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    def read(self, size: int, position: int) -> bytes:
        """Return the bytes that `read_into` reads."""
        window = memoryview(bytearray(size))
        return bytes(window[: self.read_into(window, position)])

    def read_into(self, window: memoryview, position: int) -> int:
        """Fill the window and return the bytes read, fewer only at the end of the file. Positions ascend or repeat.

        Raises Unavailable when the disk cannot be read.
        """
        try:
            return self._read_into(window, position)
        except OSError as error:
            raise Unavailable("the broker's disk cannot be read", file=self._source, reason=error.strerror) from error

    def _read_into(self, window: memoryview, position: int) -> int:
        filled = 0
        repeated = min(max(self._seen - position, 0), len(window))  # read before: we know which pages are ours
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
        """Drop our pages below ``stop``, but keep a page that continues behind it until its rest is used, too."""
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
        """Drop all our pages. The file stays open, because it belongs to the caller."""
        self.drop(self._size)

    def _not_there(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Return the whole pages that a read will bring in; dropping does not affect partial pages."""
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
