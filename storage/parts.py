"""Parts of uploads in memory. They are large: no code keeps a part that it handed on, and all uploads share a few."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .object_store import Data

MORE_PARTS = 2
"""How many more parts all uploads of a store may have together than one upload alone."""


@dataclass(slots=True)
class Part:
    """``last``: no part comes after it. This is known before it is sent, because some stores require that."""

    data: bytearray
    last: bool


class PartShares:
    """Bounds the parts (filling, waiting or in flight) of all uploads to one store: its memory for uploads.

    One upload has at most ``each`` parts, all uploads together ``each + MORE_PARTS``; they get them in turn. A part is
    filled only once there is a share for it, and an upload that fills a part waits for no other, so all uploads make
    progress. An upload whose store stalls keeps its shares until its requests time out; while other uploads need
    shares, it has at most an equal part of them, or one. Thread-safe.
    """

    def __init__(self, each: int) -> None:
        self._each, self._most = each, each + MORE_PARTS
        self._changed = threading.Condition()
        self._line: deque[UploadShare] = deque()
        self._uploads = self._taken = 0

    @contextmanager
    def upload(self) -> Iterator[UploadShare]:
        """Yield the share of one upload. At the end, what it still holds is given back: drop the parts before that."""
        with self._changed:
            self._uploads += 1
            share = UploadShare(self)
        try:
            yield share
        finally:
            with self._changed:
                self._uploads -= 1
                self._taken -= share.held
                share.held = 0
                self._changed.notify_all()

    def _take(self, share: UploadShare) -> None:
        with self._changed:
            self._line.append(share)
            try:
                self._changed.wait_for(lambda: self._taken < self._most and self._next() is share)
                share.held += 1
                self._taken += 1
            finally:
                self._line.remove(share)
                self._changed.notify_all()

    def _next(self) -> UploadShare | None:
        """Return the first upload in line that has less than its share of all parts."""
        own = max(1, min(self._each, self._most // max(1, self._uploads)))
        return next((share for share in self._line if share.held < own), None)

    def _give_back(self, share: UploadShare) -> None:
        with self._changed:
            share.held -= 1
            self._taken -= 1
            self._changed.notify_all()


class UploadShare:
    """The share of one upload: `take` before a part is filled, on one thread; `give_back` once it was sent, on any."""

    def __init__(self, shares: PartShares) -> None:
        self._shares, self.held = shares, 0

    def take(self) -> None:
        """Wait until the upload may have one more part."""
        self._shares._take(self)

    def give_back(self) -> None:
        self._shares._give_back(self)


def parts_of(pieces: Iterable[Data], part_bytes: int, share: UploadShare) -> Iterator[Part]:
    """Re-cut pieces of any size into parts of ``part_bytes``, the last one shorter; each part has its own buffer.

    There is at least one part, perhaps of no bytes. A share is taken for each part; its receiver gives it back.
    The first part grows, because the data may be short. The others have their size from the start: buffers that grow
    leave holes in the heap that the next ones do not fit into, 10 MiB and more of them.
    """
    remaining = iter(pieces)
    share.take()
    part, filled = bytearray(), 0
    rest = _next_of(remaining)
    while rest is not None:
        head = rest[: part_bytes - filled]
        part[filled : filled + len(head)] = head
        filled += len(head)
        rest = rest[len(head) :] or _next_of(remaining)
        if filled == part_bytes and rest is not None:
            full = [Part(part, last=False)]
            del part
            yield full.pop()  # nothing here holds it while it is on its way
            share.take()
            part, filled = bytearray(part_bytes), 0
    del part[filled:]
    yield Part(part, last=True)


def drained(begin: list[Part], rest: Iterable[Part]) -> Iterator[Part]:
    """Yield the parts of ``begin``, which is emptied, then those of ``rest``."""
    while begin:
        yield begin.pop(0)
    yield from rest


def _next_of(pieces: Iterator[Data]) -> memoryview | None:
    """Return the next piece that is not empty; None at the end."""
    return next((view for piece in pieces if (view := memoryview(piece).cast("B"))), None)
