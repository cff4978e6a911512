"""Remote reads: one for all connections that need the same offset, and the reads that each connection uses.

    reading  ->  ready: kept for `KEPT_S` seconds  ->  sent with a Fetch answer; the next read begins at once
             ->  failed: kept for `AGAIN_S` seconds, so that clients that retry at once cause no other read

A read begins when the broker reports that it lacks an offset, and only after its memory was taken from the common
budget. It does not end with its connection: a client that connects again finds it. A read that no connection uses is
dropped when it is ready. Remote records are sent only for a partition that the broker answered with "out of range" to
this client. So clients without the permission get no records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ..fetch.piece import Fetched, as_written, naming
from ..fetch.reader import LogReader
from ..runtime.allocator import LARGER_THAN_READS
from ..runtime.pool import Pool
from ..state.offsets import Offset
from ..state.routing import Isolation, Tier
from .budget import Budget
from .fetch_request import FetchPosition, FetchRequest, Place

READ_BYTES = LARGER_THAN_READS - 64 * 1024
"""The most bytes of one read. The memory of a larger piece would not be reused (`allocator.py`)."""
KEPT_S = 30.0
AGAIN_S = 1.0


class ReadKey(NamedTuple):
    """The identity of a remote read. It reads at most ``size`` bytes, but at least one batch."""

    place: Place
    offset: Offset
    isolation: Isolation
    size: int


class RemoteRead:
    """A read of one piece of one partition. It is running, or has finished with `piece` or `error`."""

    def __init__(self, key: ReadKey, reads: RemoteReads) -> None:
        self.key = key
        self.users = self.sending = 0
        """The number of connections that wait for this read or keep it, and of those that are sending its piece."""
        self.over = False
        """Whether its time has passed. It must not be used any more."""
        self._reads, self._taken = reads, key.size
        self.piece: Fetched | None = None
        self.error: BaseException | None = None
        self.task = asyncio.get_running_loop().create_task(self._read())

    @property
    def place(self) -> Place:
        return self.key.place

    @property
    def ready(self) -> bool:
        return self.task.done()

    def is_of(self, position: FetchPosition | None, isolation: Isolation) -> bool:
        if position is None or self.over:
            return False
        return (self.key.offset, self.key.isolation) == (position.offset, isolation)

    def release(self) -> None:
        """Cancel this read, and return its memory to the budget. Idempotent."""
        self.task.cancel()
        self._reads.budget.adjust(-self._taken)
        self._taken, self.piece, self.over = 0, None, True

    async def _read(self) -> None:
        (topic, partition), offset, isolation, size = self.key
        reader, budget = self._reads.reader, self._reads.budget

        def read() -> Fetched:
            piece = reader.fetch(topic, partition, offset, max_bytes=size, isolation=isolation, tier=Tier.AUTO)
            # the broker returns local records itself, unless the offset is in an accepted gap before them
            kept = piece.tier is Tier.REMOTE or piece.offset > offset
            if not kept:
                return replace(piece, data=b"")
            with naming(topic, partition, offset):
                return as_written(piece, piece.source(topic, partition))

        try:
            piece = await self._reads.pool.run(read)
        except Exception as error:  # also a bug in the proxy: it must not look like the end of the log
            budget.adjust(-self._taken)
            self._taken, self.error = 0, error
            self._reads.failed(self.place, offset, error)
        else:
            budget.adjust(len(piece.data) - self._taken)
            self._taken, self.piece = len(piece.data), piece


class RemoteReads:
    """The remote reads of all connections. Used by the proxy's event loop only.

    ``failed`` is called with every error of a read.
    """

    def __init__(
        self, reader: LogReader, pool: Pool, budget: Budget, failed: Callable[[Place, Offset, BaseException], None]
    ) -> None:
        self.reader, self.pool, self.budget, self.failed = reader, pool, budget, failed
        self._reads: dict[ReadKey, RemoteRead] = {}

    def used(self, place: Place, position: FetchPosition, isolation: Isolation) -> RemoteRead | None:
        """Return the read at ``position`` for one more connection. Begin it if necessary. None: no memory is free."""
        size = max(1, min(position.max_bytes, READ_BYTES, self.budget.of_a_read))
        key = ReadKey(place, position.offset, isolation, size)
        if (read := self._reads.get(key)) is None:
            if not self.budget.for_a_read(size):
                return None
            read = self._reads[key] = RemoteRead(key, self)
            read.task.add_done_callback(lambda _: self._finished(read))
        read.users += 1
        return read

    def unused(self, read: RemoteRead) -> None:
        """Remove one user. A read without users is dropped, or goes on if it is not ready."""
        read.users -= 1
        self._drop_unused(read)

    def handed_out(self, read: RemoteRead) -> None:
        """Count one user as sending. Call `sent` afterwards."""
        read.users -= 1
        read.sending += 1

    def sent(self, read: RemoteRead) -> None:
        read.sending -= 1
        self._drop_unused(read)

    def close(self) -> None:
        """Cancel all reads, and return their memory."""
        for read in list(self._reads.values()):
            self._over(read)

    def _finished(self, read: RemoteRead) -> None:
        self._drop_unused(read)
        if not read.over:
            asyncio.get_running_loop().call_later(KEPT_S if read.error is None else AGAIN_S, self._over, read)

    def _drop_unused(self, read: RemoteRead) -> None:
        is_unused = not (read.users or read.sending)
        if is_unused and (read.over or (read.ready and read.error is None)):
            self._over(read)

    def _over(self, read: RemoteRead) -> None:
        """Keep connections from using ``read``, and release it unless it is being sent."""
        read.over = True
        if self._reads.get(read.key) is read:
            del self._reads[read.key]
        if not read.sending:
            read.release()


class ConnectionReads:
    """The remote reads that one connection uses. Used by the connection's event loop only."""

    def __init__(self, shared: RemoteReads) -> None:
        self._shared = shared
        self._reads: dict[Place, RemoteRead] = {}

    def of(self, request: FetchRequest) -> list[RemoteRead]:
        """Return the used reads of the offsets in ``request``. The broker is expected to lack these offsets."""
        return [
            read for place, read in self._reads.items() if read.is_of(request.positions.get(place), request.isolation)
        ]

    def get(self, place: Place, position: FetchPosition, isolation: Isolation) -> RemoteRead | None:
        """Return the read at ``position``, and begin it if necessary. Returns None if there is no memory for it."""
        current = self._reads.get(place)
        if current is not None and current.is_of(position, isolation):
            return current
        self.drop(place)
        read = self._shared.used(place, position, isolation)
        if read is not None:
            self._reads[place] = read
        return read

    def handed_out(self, read: RemoteRead, position: FetchPosition) -> None:
        """Remove ``read``, which is sent now; its caller must call `sent`. Begin the next read, unless the broker has
        that offset."""
        piece = read.piece
        self._reads.pop(read.place, None)
        self._shared.handed_out(read)
        if piece is not None and piece.data and piece.next_offset < piece.bounds.local_start:
            self.get(read.place, FetchPosition(piece.next_offset, position.max_bytes), read.key.isolation)

    def sent(self, read: RemoteRead) -> None:
        self._shared.sent(read)

    def drop(self, place: Place) -> None:
        """Remove the read of ``place``, if any, because the client no longer needs it."""
        if (read := self._reads.pop(place, None)) is not None:
            self._shared.unused(read)

    def close(self) -> None:
        for place in list(self._reads):
            self.drop(place)


async def wait_for_one(reads: list[RemoteRead], seconds: float, failed_s: float) -> bool:
    """Wait until a read has succeeded, or until ``seconds`` have passed; ``failed_s`` if no read is running.

    Returns whether a read has succeeded.

    A failed read does not end the wait at once, because some clients retry at once and endlessly.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not any(read.ready and read.error is None for read in reads):
        running = [read.task for read in reads if not read.ready]
        left = began + (seconds if running else min(seconds, failed_s)) - loop.time()
        if left <= 0:
            return False
        if running:
            await asyncio.wait(running, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(left)
    return True
