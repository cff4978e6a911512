"""Remote reads of one connection: begun when the broker first has an offset no more, kept until they are fetched.

    nothing  ->  reading  ->  ready, kept for `KEPT_S`  ->  handed out; the next one begins at once
                          ->  failed, kept for `AGAIN_S`, so that a client that comes at once does not ask the store

A read never holds an answer up (`fetches.py` waits a moment where there is nothing else): a cold partition must not
starve the hot ones fetched with it. Memory: of the common budget, taken before a read begins; else none begins.
What was read is given only to a fetch that the broker has answered with "out of range": who may not read gets nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from ..app.pool import Pool
from ..fetch.as_written import as_written
from ..fetch.piece import Fetched, naming
from ..runtime.allocator import LARGER_THAN_READS
from ..state.errors import TierstateError
from ..state.offsets import Offset
from ..state.routing import Isolation, Tier
from .budget import Budget
from .fetch_request import FetchRequest, Place, Wanted

READ_BYTES = LARGER_THAN_READS - 64 * 1024
"""Of one read, at most: memory that is used again. Of a larger piece every page would be new (`allocator.py`)."""
KEPT_S = 30.0
AGAIN_S = 1.0


class RemoteReader(Protocol):
    """What is needed of `fetch.reader.LogReader`. Thread-safe, blocking."""

    def fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int, isolation: Isolation, tier: Tier
    ) -> Fetched: ...


@dataclass(frozen=True, slots=True)
class Shared:
    """By all connections. ``seen``: is told of every error of a remote read."""

    reader: RemoteReader
    pool: Pool
    budget: Budget
    seen: Callable[[Place, Offset, BaseException], None]


class ColdRead:
    """One piece of one partition, being read, read, or failed."""

    def __init__(self, place: Place, wanted: Wanted, isolation: Isolation, shared: Shared, size: int) -> None:
        self.place, self.offset, self.isolation = place, wanted.offset, isolation
        self._shared, self._taken = shared, size
        self.piece: Fetched | None = None
        self.error: BaseException | None = None
        self.task = asyncio.get_running_loop().create_task(self._read(wanted))

    @property
    def ready(self) -> bool:
        return self.task.done()

    def is_of(self, wanted: Wanted | None, isolation: Isolation) -> bool:
        return wanted is not None and (self.offset, self.isolation) == (wanted.offset, isolation)

    def release(self) -> None:
        """It holds no memory any more. Idempotent."""
        self.task.cancel()
        self._shared.budget.adjust(-self._taken)
        self._taken, self.piece = 0, None

    async def _read(self, wanted: Wanted) -> None:
        (topic, partition), size, reader = self.place, self._taken, self._shared.reader

        def read() -> Fetched:
            piece = reader.fetch(
                topic, partition, self.offset, max_bytes=size, isolation=self.isolation, tier=Tier.AUTO
            )
            # the broker gives what is local, but not for an offset of an accepted gap before it
            kept = piece.tier is Tier.REMOTE or piece.offset > self.offset
            if not kept:
                return replace(piece, data=b"")
            with naming(topic, partition, self.offset):
                return as_written(piece, piece.source(topic, partition))

        try:
            piece = await self._shared.pool.run(read)
        except TierstateError as error:
            self._fail(error)
        except Exception as error:  # a bug of ours must not look like the end of the log
            self._fail(error)
        else:
            self._shared.budget.adjust(len(piece.data) - self._taken)
            self._taken, self.piece = len(piece.data), piece

    def _fail(self, error: BaseException) -> None:
        self._shared.budget.adjust(-self._taken)
        self._taken, self.error = 0, error
        self._shared.seen(self.place, self.offset, error)


class ColdReads:
    """Of one connection; by its loop alone."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._reads: dict[Place, ColdRead] = {}

    def of(self, request: FetchRequest) -> list[ColdRead]:
        """The reads of what it asks for, and the broker is thought to have no more."""
        return [read for place, read in self._reads.items() if read.is_of(request.wanted.get(place), request.isolation)]

    def get(self, place: Place, wanted: Wanted, isolation: Isolation) -> ColdRead | None:
        """The read of this offset, begun now if need be; None when there is no memory for it."""
        known = self._reads.get(place)
        if known is not None and known.is_of(wanted, isolation):
            return known
        self.drop(place)
        budget = self._shared.budget
        size = max(1, min(wanted.max_bytes, READ_BYTES, budget.of_a_read))
        if not budget.for_a_read(size):
            return None
        read = self._reads[place] = ColdRead(place, wanted, isolation, self._shared, size)
        read.task.add_done_callback(lambda _: self._expire(read))
        return read

    def handed_out(self, read: ColdRead, wanted: Wanted) -> None:
        """Its bytes are the caller's now, who calls `release`. What is likely to be fetched next is begun."""
        piece = read.piece
        self._reads.pop(read.place, None)
        if piece is not None and piece.data and piece.next_offset < piece.bounds.local_start:
            self.get(read.place, Wanted(piece.next_offset, wanted.max_bytes), read.isolation)

    def drop(self, place: Place) -> None:
        """The client went elsewhere, or its read is of no use any more."""
        if (read := self._reads.pop(place, None)) is not None:
            read.release()

    def close(self) -> None:
        for place in list(self._reads):
            self.drop(place)

    def _expire(self, read: ColdRead) -> None:
        def over() -> None:
            if self._reads.get(read.place) is read:
                self.drop(read.place)

        if self._reads.get(read.place) is read:
            asyncio.get_running_loop().call_later(KEPT_S if read.error is None else AGAIN_S, over)


async def wait_for_one(reads: list[ColdRead], seconds: float) -> None:
    """Until one of them has something to give, or the time is over.

    One that failed hurries nobody: clients ask again at once, some of them without end.
    """
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    while (left := ends - loop.time()) > 0 and not any(read.ready and read.error is None for read in reads):
        running = [read.task for read in reads if not read.ready]
        if running:
            await asyncio.wait(running, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(left)
