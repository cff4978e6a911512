"""Memory for what is read once and in order, used again: fresh memory costs a page fault every 4 KiB, more than the
read itself."""

from __future__ import annotations

import mmap
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from ..object_store import MIB

HEAD_BYTES = MIB
"""Free before a window's bytes, for the end of the window before it: a batch that lies in both is then in one piece.
Pages of it that nobody writes to cost nothing."""

Bytes = bytes | memoryview
"""Nobody changes them."""
Memory = Callable[[int], memoryview]
"""So many bytes to write into."""
LARGEST_CHUNK = 8 * MIB


def new_memory(size: int) -> memoryview:
    return np.empty(size, np.uint8).data


def put(target: memoryview, at: int, piece: Bytes) -> None:
    """``piece`` into ``target``. Others run meanwhile; while Python itself copies, they wait, also for page faults."""
    np.frombuffer(target, np.uint8)[at : at + len(piece)] = np.frombuffer(piece, np.uint8)


def joined(pieces: Iterable[Bytes]) -> memoryview:
    """In one. Others run meanwhile, as they do not while `bytes.join` copies views."""
    found = [np.frombuffer(each, np.uint8) for each in pieces if len(each)]
    return np.concatenate(found or [np.empty(0, np.uint8)]).data.toreadonly()


class ChunkMemory:
    """Of chunks that are forgotten, for the next of the same size. What somebody holds a view of is not used again.

    At most ``keep`` wait for that, of whole MiB (the last chunk of a log has a size of its own), and of at most
    `LARGEST_CHUNK`; others have new memory. Thread-safe.
    """

    def __init__(self, keep: int) -> None:
        self._free: deque[memoryview] = deque(maxlen=keep)

    def __call__(self, size: int) -> memoryview:
        if size % MIB or size > LARGEST_CHUNK:
            return new_memory(size)
        try:
            whole = self._free.pop()
        except IndexError:
            whole = memoryview(b"")
        if len(whole) != size:
            # pages of its own, which go back with it; `numpy` would ask for large ones, which are cleared in one go
            whole = memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        return _lent(whole, size, self._free)


@dataclass(frozen=True, slots=True)
class Window:
    """Bytes of the plain log from ``start`` on. Whoever holds ``data``, or what was made of it, keeps its memory."""

    start: int
    data: memoryview
    _memory: memoryview

    def after(self, tail: bytes) -> memoryview:
        """``tail`` and the window, one behind the other; not copied where the tail is short. Once a window."""
        head = HEAD_BYTES - len(tail)
        if head < 0:
            return memoryview(b"".join((tail, self.data)))
        self._memory[head:HEAD_BYTES] = tail
        return self._memory[head:].toreadonly()


class Buffers:
    """Memory is given back by being forgotten, so nothing that is still held is ever overwritten.

    At most ``keep`` buffers wait to be used again, each as large as the largest window so far. Thread-safe.
    """

    def __init__(self, keep: int) -> None:
        self._free: deque[memoryview] = deque(maxlen=keep)

    def take(self, start: int, size: int) -> Window:
        """A window to write into `Window.data`."""
        try:
            whole = self._free.pop()
        except IndexError:
            whole = memoryview(b"")
        if len(whole) < HEAD_BYTES + size:
            whole = np.empty(HEAD_BYTES + size, np.uint8).data
        memory = _lent(whole, HEAD_BYTES + size, self._free)
        return Window(start, memory[HEAD_BYTES:], memory)


def _lent(whole: memoryview, size: int, free: deque[memoryview]) -> memoryview:
    """The first ``size`` bytes; ``whole`` is free again with their last view."""
    # Of an array over an array's memory numpy would remember only the inner one, and nobody would hold this one.
    lent = np.frombuffer(whole, np.uint8, size)
    weakref.finalize(lent, free.append, whole)
    return lent.data
