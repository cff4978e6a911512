"""Reuses memory for bytes that are read once and in order: new memory costs a page fault every 4 KiB, more than the
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
"""Free bytes before a window, for the end of the window before it: a batch that lies in both is then in one piece.
Pages that are never written cost nothing."""

Bytes = bytes | memoryview
"""Bytes that are never changed."""
Memory = Callable[[int], memoryview]
"""Returns that many bytes to write into."""
LARGEST_CHUNK = 8 * MIB


def new_memory(size: int) -> memoryview:
    return np.empty(size, np.uint8).data


def put(target: memoryview, at: int, piece: Bytes) -> None:
    """Copy ``piece`` into ``target``. Other threads run; during a copy by Python they wait, also for page faults."""
    np.frombuffer(target, np.uint8)[at : at + len(piece)] = np.frombuffer(piece, np.uint8)


def joined(pieces: Iterable[Bytes]) -> memoryview:
    """Join the pieces. Other threads run during the copy, but not while `bytes.join` copies views."""
    arrays = [np.frombuffer(each, np.uint8) for each in pieces if len(each)]
    return np.concatenate(arrays or [np.empty(0, np.uint8)]).data.toreadonly()


class ChunkMemory:
    """Reuses the memory of dropped chunks for the next ones of the same size, once no view of it is left.

    At most ``keep`` blocks wait for reuse, of whole MiB (the last chunk of a log has its own size) and of at most
    `LARGEST_CHUNK`; other chunks get new memory. Thread-safe.
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
            # pages of its own, which are freed with it; `numpy` would ask for huge pages, which are cleared as a whole
            whole = memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        return _lent(whole, size, self._free)


@dataclass(frozen=True, slots=True)
class Window:
    """Bytes of the plain log from ``start`` on. A reference to ``data``, or to a view of it, keeps its memory."""

    start: int
    data: memoryview
    _memory: memoryview

    def after(self, tail: bytes) -> memoryview:
        """Return ``tail`` followed by the window; not copied where the tail is short. Call it once per window."""
        head = HEAD_BYTES - len(tail)
        if head < 0:
            return memoryview(b"".join((tail, self.data)))
        self._memory[head:HEAD_BYTES] = tail
        return self._memory[head:].toreadonly()


class Buffers:
    """Reuses memory once nothing refers to it, so nothing that is still held is ever overwritten.

    At most ``keep`` buffers wait to be used again, each as large as the largest window so far. Thread-safe.
    """

    def __init__(self, keep: int) -> None:
        self._free: deque[memoryview] = deque(maxlen=keep)

    def take(self, start: int, size: int) -> Window:
        """Return a window; write into its ``data``."""
        try:
            whole = self._free.pop()
        except IndexError:
            whole = memoryview(b"")
        if len(whole) < HEAD_BYTES + size:
            whole = np.empty(HEAD_BYTES + size, np.uint8).data
        memory = _lent(whole, HEAD_BYTES + size, self._free)
        return Window(start, memory[HEAD_BYTES:], memory)


def _lent(whole: memoryview, size: int, free: deque[memoryview]) -> memoryview:
    """Return the first ``size`` bytes; ``whole`` is free again when their last view is dropped."""
    # An array over another array's memory would keep only that array alive: nothing would hold ``lent``.
    lent = np.frombuffer(whole, np.uint8, size)
    weakref.finalize(lent, free.append, whole)
    return lent.data
