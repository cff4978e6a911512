"""The parts of uploads in memory. Parts are large, so no code keeps a part that it passed on, and few may exist."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from .object_store import Data

A = TypeVar("A")

MORE_PARTS = 2
"""Number of parts that all uploads of a store may have in addition to the parts that one upload may have."""


@dataclass(slots=True)
class Part:
    """A part of an upload. Some stores must know with a part whether it is the ``last`` one. `send_all` empties it."""

    data: bytes | bytearray
    last: bool


class PartShares:
    """Bounds the parts (filling, waiting or in flight) of all uploads to one store, and so the memory for uploads.

    A share permits one part. An upload has at most ``each`` shares, all uploads together ``each + MORE_PARTS``. They
    get shares in the order of their requests, but not more than an equal number each, and one at least. A part is
    filled only after its share was taken, and an upload that fills a part waits for no other upload, so all make
    progress. An upload that stalls keeps its shares until its requests time out. Thread-safe.
    """

    def __init__(self, each: int) -> None:
        self._each, self._most = each, each + MORE_PARTS
        self._changed = threading.Condition()
        self._line: deque[UploadShare] = deque()
        self._uploads = self._taken = 0

    @contextmanager
    def upload(self) -> Iterator[UploadShare]:
        """Yield the shares of one upload. At the end, those not given back yet are returned: drop the parts before."""
        with self._changed:
            self._uploads += 1
            share = UploadShare(self)
        try:
            yield share
        finally:
            with self._changed:
                self._uploads -= 1
            self._give_back(share, share.held)

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
        """Return the first waiting upload that has fewer parts than an equal number for all uploads."""
        own = max(1, min(self._each, self._most // max(1, self._uploads)))
        return next((share for share in self._line if share.held < own), None)

    def _give_back(self, share: UploadShare, count: int) -> None:
        with self._changed:
            share.held -= count
            self._taken -= count
            self._changed.notify_all()


class UploadShare:
    """The shares of one upload. Call `take` before filling a part, on one thread. Call `give_back` after sending it."""

    def __init__(self, shares: PartShares) -> None:
        self._shares, self.held = shares, 0

    def take(self) -> None:
        self._shares._take(self)

    def give_back(self) -> None:
        self._shares._give_back(self, 1)


def parts_of(pieces: Iterable[Data], part_bytes: int, share: UploadShare) -> Iterator[Part]:
    """Yield the pieces, which have any size, as parts of ``part_bytes``. The last part may be shorter or empty.

    There is at least one part. Each part has its own buffer. A share is taken for each part, and its receiver gives the
    share back. The buffer of the first part grows, because the data may be short. Later buffers have their full size
    from the start, because growing buffers would leave 10 MiB and more of unusable holes in the heap.
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
            full = Part(part, last=False)
            del part  # otherwise this name keeps it until the next part is made
            yield full
            share.take()
            part, filled = bytearray(part_bytes), 0
    del part[filled:]
    yield Part(part, last=True)


def send_all(
    parts: Iterable[Part], send: Callable[[int, Part], A], share: UploadShare, failed: threading.Event, threads: int
) -> tuple[list[A], int]:
    """Call ``send`` with the number (from 0) of each part and the part. Return its results in order, and the sum of the
    parts' bytes.

    ``send`` runs on up to ``threads`` threads at a time. A failure, also of the iterator, sets ``failed``. No thread
    remains when this returns or raises: a part that arrives after an abort would keep the upload alive.
    """
    size = 0
    results: list[A] = []
    waiting: deque[Future[A]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="tierstate-part")
    try:
        for part in parts:
            size += len(part.data)
            waiting.append(pool.submit(_send, send, len(results) + len(waiting), part, share))
            while waiting and waiting[0].done():
                results.append(waiting.popleft().result())
        results.extend(each.result() for each in waiting)
    except BaseException:  # also an interrupt
        failed.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return results, size


def _send(send: Callable[[int, Part], A], number: int, part: Part, share: UploadShare) -> A:
    try:
        return send(number, part)
    finally:
        part.data = b""  # this frees the memory before the share is given back
        share.give_back()


def as_bytes(part: Part) -> Part:
    part.data = bytes(part.data)
    return part


def _next_of(pieces: Iterator[Data]) -> memoryview | None:
    """Return the next piece that is not empty. Returns None at the end."""
    return next((view for piece in pieces if (view := memoryview(piece).cast("B"))), None)
