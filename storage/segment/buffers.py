"""Reuses memory for bytes that are read once and in order. New memory costs a page fault per 4 KiB, which takes longer
than the read itself."""

from __future__ import annotations

import mmap
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from ..object_store import MIB

HEAD_BYTES = MIB
"""Free bytes before a window for the end of the previous one. So a batch that crosses both windows is in one piece.
Pages that are never written cost nothing."""

Bytes = bytes | memoryview
"""Bytes that their receiver must not change."""
Memory = Callable[[int], memoryview]
"""A function that returns writable memory of the given size in bytes."""
LARGEST_CHUNK = 8 * MIB


def new_memory(size: int) -> memoryview:
    return np.empty(size, np.uint8).data


def put(target: memoryview, at: int, piece: Bytes) -> None:
    """Copy ``piece`` into ``target`` at ``at``. Other threads run during the copy, unlike during a slice assignment."""
    np.frombuffer(target, np.uint8)[at : at + len(piece)] = np.frombuffer(piece, np.uint8)


def joined(pieces: Iterable[Bytes]) -> memoryview:
    """Return the joined pieces. Other threads run during the copy, unlike while `bytes.join` copies views."""
    arrays = [np.frombuffer(each, np.uint8) for each in pieces if len(each)]
    return np.concatenate(arrays or [np.empty(0, np.uint8)]).data.toreadonly()


class ChunkMemory:
    """Reuses the memory of dropped chunks for later chunks of the same size, when no view of it remains.

    At most ``keep`` blocks wait for reuse. Only chunks of whole MiB, up to `LARGEST_CHUNK`, use such blocks. Other
    chunks, such as the last one of a log, get new memory. Thread-safe.
    """

    def __init__(self, keep: int) -> None:
        self._free: deque[memoryview] = deque(maxlen=keep)

    def __call__(self, size: int) -> memoryview:
        if size % MIB or size > LARGEST_CHUNK:
            return new_memory(size)
        whole = _waiting(self._free)
        if len(whole) != size:
            # its own pages are freed with it; `numpy` would request huge pages, which the kernel clears as a whole
            whole = memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        return _lent(whole, size, self._free)


@dataclass(frozen=True, slots=True)
class Window:
    """Bytes of the plain log from ``start`` on. References to ``data``, or to views of it, keep the memory in use."""

    start: int
    data: memoryview
    _memory: memoryview

    def after(self, tail: bytes) -> memoryview:
        """Return ``tail`` followed by the window. A tail of up to `HEAD_BYTES` needs no copy. Call it only once."""
        head = HEAD_BYTES - len(tail)
        if head < 0:
            return memoryview(b"".join((tail, self.data)))
        self._memory[head:HEAD_BYTES] = tail
        return self._memory[head:].toreadonly()


class Buffers:
    """Reuses the memory of windows that are no longer referenced, so that no window in use is overwritten.

    At most ``keep`` buffers wait for reuse, each at most as large as the largest window so far. Thread-safe.
    """

    def __init__(self, keep: int) -> None:
        self._free: deque[memoryview] = deque(maxlen=keep)

    def take(self, start: int, size: int) -> Window:
        """Return a window of ``size`` bytes. The caller fills its ``data``."""
        whole = _waiting(self._free)
        if len(whole) < HEAD_BYTES + size:
            whole = np.empty(HEAD_BYTES + size, np.uint8).data
        memory = _lent(whole, HEAD_BYTES + size, self._free)
        return Window(start, memory[HEAD_BYTES:], memory)


def _waiting(free: deque[memoryview]) -> memoryview:
    try:
        return free.pop()
    except IndexError:
        return memoryview(b"")


def _lent(whole: memoryview, size: int, free: deque[memoryview]) -> memoryview:
    """Return the first ``size`` bytes of ``whole``. When their last view is dropped, ``free`` gets ``whole`` back."""
    # ``whole`` is a memoryview: views of an array over another array keep only that other array alive, not ``lent``.
    lent = np.frombuffer(whole, np.uint8, size)
    weakref.finalize(lent, free.append, whole)
    return lent.data
