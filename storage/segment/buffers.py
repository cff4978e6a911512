"""Memory for what is read once and in order, used again: fresh memory costs a page fault every 4 KiB, more than the
read itself."""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass

import numpy as np

from ..object_store import MIB

HEAD_BYTES = MIB
"""Free before a window's bytes, for the end of the window before it: a batch that lies in both is then in one piece.
Pages of it that nobody writes to cost nothing."""


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
        # Of an array over an array's memory numpy would remember only the inner one, and nobody would hold this one.
        lent = np.frombuffer(whole, np.uint8, HEAD_BYTES + size)
        weakref.finalize(lent, self._free.append, whole)
        memory = lent.data
        return Window(start, memory[HEAD_BYTES:], memory)
