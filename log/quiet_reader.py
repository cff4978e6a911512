"""A file read once, beside a broker that lives on the same page cache: what was in it stays, what we brought in goes.

Each read first takes what is in the cache (``RWF_NOWAIT``); the rest is read from the disk and remembered as ours, to
be dropped once it is used. Reading ahead by the kernel is off (``POSIX_FADV_RANDOM``): its pages would look as if they
had been there. A read that meets both drops up to its own length of what was there behind the first missing page.
"""

from __future__ import annotations

import errno
import mmap
import os
from contextlib import suppress

from ..state.errors import Unavailable

PAGE = mmap.PAGESIZE
CACHED_ONLY: int = getattr(os, "RWF_NOWAIT", 0)
"""Linux' flag; 0 where there is none, as on macOS: agents run on Linux, everything else may be imported anywhere."""
_NO_SUCH_READ = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}


class QuietReader:
    """Of an open file of ``size`` bytes, named ``source`` in errors; one thread's at a time.

    On a file system that cannot tell (no ``RWF_NOWAIT``) all that was read is dropped.
    """

    def __init__(self, descriptor: int, size: int, source: str, cached_only: int = CACHED_ONLY) -> None:
        """``cached_only``: the flag of preadv2(2) for what needs no disk."""
        self._descriptor, self._size, self._source, self._cached_only = descriptor, size, source, cached_only
        self._seen = 0
        self._ours: list[tuple[int, int]] = []
        self._tells = True
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
        filled += self._cached(window[filled:], position + filled)
        begin = position + filled
        filled += self._plain(window[filled:], begin)
        self._take(begin, position + filled)
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

    def _cached(self, window: memoryview, position: int) -> int:
        """What the page cache has, up to the first page that it has not."""
        if not self._tells:
            return 0
        try:
            return os.preadv(self._descriptor, [window], position, self._cached_only)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno not in _NO_SUCH_READ:
                raise
            self._tells = False
            return 0

    def _plain(self, window: memoryview, position: int) -> int:
        filled = 0
        while filled < len(window):
            size = os.preadv(self._descriptor, [window[filled:]], position + filled)
            if not size:
                break
            filled += size
        return filled

    def _take(self, begin: int, end: int) -> None:
        """Remembers as ours, in whole pages: dropping leaves half ones where they are."""
        if begin == end:
            return
        begin -= begin % PAGE
        end = min(-(-end // PAGE) * PAGE, self._size)
        if self._ours and self._ours[-1][1] >= begin:  # the page in which the read before this one ended
            begin = self._ours.pop()[0]
        self._ours.append((begin, end))
