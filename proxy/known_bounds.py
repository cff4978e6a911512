"""The bounds of both tiers, as all connections of a proxy know them.

    the broker lacks an offset        the bounds decide whether the log over both tiers has it. They are at most twice
                                      `AGE_S` old, and are requested again before an offset is called out of range.
                                      In an answer with local records, they may be `START_AGE_S` old
    the broker has the offset, and    the broker's log start is replaced by that of both tiers, which may be up to
    its log starts above 0            `START_AGE_S` old: clients use it for metrics only

At most one request for a partition is running. All connections wait for the same one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from cachetools import LRUCache

from ..fetch.piece import LogicalBounds
from ..fetch.reader import LogReader
from ..runtime.pool import Pool
from ..state.errors import TierstateError, TimedOut
from ..state.ids import TopicId
from .fetch_request import Place

AGE_S = 1.0
START_AGE_S = 30.0
PARTITIONS = 100_000
"""The most partitions whose bounds are kept."""


@dataclass(frozen=True, slots=True)
class Known:
    """The bounds of a partition, and the id of its topic. ``at``: the loop's time when they were requested.

    ``fresh``: the broker was asked then. Otherwise a remote read may have asked it up to `AGE_S` before.
    """

    topic_id: TopicId
    bounds: LogicalBounds
    at: float
    fresh: bool


class KnownBounds:
    """Bounds by topic name and partition. Used by the proxy's event loop only."""

    def __init__(self, reader: LogReader, metadata: Pool) -> None:
        self._reader, self._metadata = reader, metadata
        self._known: LRUCache[Place, Known] = LRUCache(PARTITIONS)
        self._started: LRUCache[Place, float] = LRUCache(PARTITIONS)
        """The loop's time when the log start was last requested for an answer that passes."""
        self._requests: dict[Place, asyncio.Task[None]] = {}

    async def of(self, place: Place, wait_s: float, *, fresh: bool = False, at_once: bool = False) -> Known:
        """Return bounds that were requested at most `AGE_S` ago, or during this call if they must be ``fresh``.

        ``at_once``: if bounds of up to `START_AGE_S` are known, return them, and do not wait for newer ones.
        Raises TimedOut after ``wait_s`` seconds. Also raises the errors of `LogReader.bounds`.
        """
        time = asyncio.get_running_loop().time
        called_at = time()
        while True:
            known = self._known.get(place)
            if known is not None and known.at >= called_at - AGE_S * (not fresh) and known.fresh >= fresh:
                return known
            if (left := called_at + wait_s - time()) <= 0:
                raise TimedOut("the bounds of both tiers are not known yet", topic=place[0], partition=place[1])
            request = self._request(place, fresh=fresh)
            if at_once and known is not None and known.at >= called_at - START_AGE_S:
                return known
            await self._answered(request, left)

    async def seldom(self, place: Place, wait_s: float) -> Known | None:
        """Return bounds that may be `START_AGE_S` old. None: they are unknown now, or the topic is not tiered.

        The first call for a partition waits at most ``wait_s`` seconds. Later calls do not wait.
        """
        now, before = asyncio.get_running_loop().time(), self._started.get(place)
        if before is None or now - before > START_AGE_S:
            self._started[place] = now
            request = self._request(place, only_if_tiered=True)
            if before is None:
                with suppress(TierstateError):
                    await self._answered(request, wait_s)
        return self._known.get(place)

    def close(self) -> None:
        for task in self._requests.values():
            task.cancel()

    def _request(self, place: Place, *, fresh: bool = False, only_if_tiered: bool = False) -> asyncio.Task[None]:
        """Return the running request for the partition. Begin one if there is none."""
        if (task := self._requests.get(place)) is None:
            task = asyncio.get_running_loop().create_task(self._ask(place, fresh, only_if_tiered))
            self._requests[place] = task
            task.add_done_callback(partial(self._ended, place))
        return task

    def _ended(self, place: Place, task: asyncio.Task[None]) -> None:
        self._requests.pop(place, None)
        if not task.cancelled():
            task.exception()  # the error of a request that no caller waits for is dropped

    async def _answered(self, task: asyncio.Task[None], wait_s: float) -> None:
        done, _ = await asyncio.wait([task], timeout=wait_s)
        if done:
            task.result()

    async def _ask(self, place: Place, fresh: bool, only_if_tiered: bool) -> None:
        topic, partition = place
        at = asyncio.get_running_loop().time()

        def read() -> Known | None:
            if only_if_tiered and not self._reader.is_tiered(topic):
                return None
            bounds = self._reader.bounds(topic, partition, 0.0 if fresh else AGE_S)
            return Known(self._reader.topic(topic).topic_id, bounds, at, fresh)

        known = await self._metadata.run(read, goes_on=True)
        if known is None:
            self._known.pop(place, None)
        else:
            self._known[place] = known
