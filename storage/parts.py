"""Parts of an upload on their way: large, so nobody holds one that was handed on, and all uploads share a few."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .object_store import Data

MORE_PARTS = 2
"""All uploads of a store together have so many parts more than one upload may have alone."""


@dataclass(slots=True)
class Part:
    """``last``: nothing comes after it. Known before it is sent, for some stores want to be told."""

    data: bytearray
    last: bool


class PartShares:
    """The parts that exist, filling, waiting or in flight, over all uploads of one store: its memory for uploads.

    One upload has at most ``each``, all together ``each + MORE_PARTS`` parts, however many there are; they get them in
    turn. A part is filled only once there is a share for it, and who fills one waits for no other, so all of them go
    on. One whose store stalls keeps its shares until its requests time out; while others want some, that is at most
    an equal share, or one. Thread-safe.
    """

    def __init__(self, each: int) -> None:
        self._each, self._most = each, each + MORE_PARTS
        self._changed = threading.Condition()
        self._line: deque[UploadShare] = deque()
        self._uploads = self._taken = 0

    @contextmanager
    def upload(self) -> Iterator[UploadShare]:
        """For as long as an upload lasts. What it still holds in the end is given back: let go of the parts first."""
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
        """The first in line that has less than its share of all parts."""
        own = max(1, min(self._each, self._most // max(1, self._uploads)))
        return next((share for share in self._line if share.held < own), None)

    def _give_back(self, share: UploadShare) -> None:
        with self._changed:
            share.held -= 1
            self._taken -= 1
            self._changed.notify_all()


class UploadShare:
    """One upload's: `take` before a part is filled, on one thread; `give_back` once it was sent, on any."""

    def __init__(self, shares: PartShares) -> None:
        self._shares, self.held = shares, 0

    def take(self) -> None:
        """Waits until there may be one part more."""
        self._shares._take(self)

    def give_back(self) -> None:
        self._shares._give_back(self)


def parts_of(pieces: Iterable[Data], part_bytes: int, share: UploadShare) -> Iterator[Part]:
    """Pieces of any size re-cut into parts of ``part_bytes``, the last one shorter; each a buffer of its own.

    One part at least, if of no bytes. A share is taken for each; who gets the part gives it back.
    The first part grows, for there may be little to come. The others have their size from the start: buffers that grow
    leave holes in the heap that the next ones do not fit into, 10 MiB and more of them.
    """
    each = iter(pieces)
    share.take()
    part, filled = bytearray(), 0
    rest = _next_of(each)
    while rest is not None:
        taken = rest[: part_bytes - filled]
        part[filled : filled + len(taken)] = taken
        filled += len(taken)
        rest = rest[len(taken) :] or _next_of(each)
        if filled == part_bytes and rest is not None:
            full = [Part(part, last=False)]
            del part
            yield full.pop()  # nothing here holds it while it is on its way
            share.take()
            part, filled = bytearray(part_bytes), 0
    del part[filled:]
    yield Part(part, last=True)


def drained(begin: list[Part], rest: Iterable[Part]) -> Iterator[Part]:
    """``begin``, which is emptied, then ``rest``."""
    while begin:
        yield begin.pop(0)
    yield from rest


def _next_of(pieces: Iterator[Data]) -> memoryview | None:
    """The next piece that is not empty; None at the end."""
    return next((view for piece in pieces if (view := memoryview(piece).cast("B"))), None)
