"""Remote reads of one connection. A read begins when the broker reports that it lacks an offset.

    reading  ->  ready: kept for `KEPT_S` seconds  ->  sent with a Fetch answer; the next read begins at once
             ->  failed: kept for `AGAIN_S` seconds, so that a client that retries at once causes no other read

A read does not delay local records of other partitions in the same Fetch. An answer without any records waits a short
time (`fetches.py`). A read begins only after its memory was taken from the common budget. Remote records are sent only
for a partition that the broker answered with "out of range". So clients without the permission get no records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from ..fetch.as_written import as_written
from ..fetch.piece import Fetched, naming
from ..runtime.allocator import LARGER_THAN_READS
from ..runtime.pool import Pool
from ..state.errors import TierstateError
from ..state.offsets import Offset
from ..state.routing import Isolation, Tier
from .budget import Budget
from .fetch_request import FetchRequest, Place, Wanted

READ_BYTES = LARGER_THAN_READS - 64 * 1024
"""The most bytes of one read. The memory of a larger piece would not be reused (`allocator.py`)."""
KEPT_S = 30.0
AGAIN_S = 1.0


class RemoteReader(Protocol):
    """The methods of `fetch.reader.LogReader` that remote reads need. Thread-safe, blocking."""

    def fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int, isolation: Isolation, tier: Tier
    ) -> Fetched: ...


@dataclass(frozen=True, slots=True)
class Shared:
    """Parts that the remote reads of all connections use. ``seen`` is called with every error of a remote read."""

    reader: RemoteReader
    pool: Pool
    budget: Budget
    seen: Callable[[Place, Offset, BaseException], None]


class ColdRead:
    """A read of one piece of one partition. It is running, or has finished with `piece` or `error`."""

    def __init__(self, place: Place, position: Wanted, isolation: Isolation, shared: Shared, size: int) -> None:
        self.place, self.offset, self.isolation = place, position.offset, isolation
        self._shared, self._taken = shared, size
        self.piece: Fetched | None = None
        self.error: BaseException | None = None
        self.task = asyncio.get_running_loop().create_task(self._read(position))

    @property
    def ready(self) -> bool:
        return self.task.done()

    def is_of(self, position: Wanted | None, isolation: Isolation) -> bool:
        return position is not None and (self.offset, self.isolation) == (position.offset, isolation)

    def release(self) -> None:
        """Cancel this read, and return its memory to the budget. Idempotent."""
        self.task.cancel()
        self._shared.budget.adjust(-self._taken)
        self._taken, self.piece = 0, None

    async def _read(self, position: Wanted) -> None:
        (topic, partition), size, reader = self.place, self._taken, self._shared.reader

        def read() -> Fetched:
            piece = reader.fetch(
                topic, partition, self.offset, max_bytes=size, isolation=self.isolation, tier=Tier.AUTO
            )
            # the broker returns local records itself, unless the offset is in an accepted gap before them
            kept = piece.tier is Tier.REMOTE or piece.offset > self.offset
            if not kept:
                return replace(piece, data=b"")
            with naming(topic, partition, self.offset):
                return as_written(piece, piece.source(topic, partition))

        try:
            piece = await self._shared.pool.run(read)
        except TierstateError as error:
            self._fail(error)
        except Exception as error:  # a bug in the proxy must not look like the end of the log
            self._fail(error)
        else:
            self._shared.budget.adjust(len(piece.data) - self._taken)
            self._taken, self.piece = len(piece.data), piece

    def _fail(self, error: BaseException) -> None:
        self._shared.budget.adjust(-self._taken)
        self._taken, self.error = 0, error
        self._shared.seen(self.place, self.offset, error)


class ColdReads:
    """The remote reads of one connection. Used by the connection's event loop only."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._reads: dict[Place, ColdRead] = {}

    def of(self, request: FetchRequest) -> list[ColdRead]:
        """Return the existing reads of the offsets in ``request``. The broker is expected to lack these offsets."""
        return [
            read for place, read in self._reads.items() if read.is_of(request.positions.get(place), request.isolation)
        ]

    def get(self, place: Place, position: Wanted, isolation: Isolation) -> ColdRead | None:
        """Return the read at ``position``, and begin it if necessary. Returns None if there is no memory for it."""
        current = self._reads.get(place)
        if current is not None and current.is_of(position, isolation):
            return current
        self.drop(place)
        budget = self._shared.budget
        size = max(1, min(position.max_bytes, READ_BYTES, budget.of_a_read))
        if not budget.for_a_read(size):
            return None
        read = self._reads[place] = ColdRead(place, position, isolation, self._shared, size)
        read.task.add_done_callback(lambda _: self._expire(read))
        return read

    def handed_out(self, read: ColdRead, position: Wanted) -> None:
        """Remove ``read``; its caller must call `release`. Begin the next read, unless the broker has that offset."""
        piece = read.piece
        self._reads.pop(read.place, None)
        if piece is not None and piece.data and piece.next_offset < piece.bounds.local_start:
            self.get(read.place, Wanted(piece.next_offset, position.max_bytes), read.isolation)

    def drop(self, place: Place) -> None:
        """Cancel and remove the read of ``place``, if any, because the client no longer needs it."""
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
    """Wait until a read has succeeded, or until ``seconds`` have passed.

    A failed read does not end the wait, because some clients retry at once and endlessly.
    """
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    while (left := ends - loop.time()) > 0 and not any(read.ready and read.error is None for read in reads):
        running = [read.task for read in reads if not read.ready]
        if running:
            await asyncio.wait(running, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(left)
