"""What the routes work with: the reader behind its pools, limits, and who is asking."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Coroutine, Iterable
from typing import Any, Protocol, TypeVar

from cachetools import LRUCache
from fastapi import Request

from ..app.pool import Pool
from ..fetch.piece import Fetched, LogicalBounds, LogicalTopic
from ..runtime.clock import Clock
from ..runtime.quota import ByteQuota
from ..runtime.settings import Gateway
from ..state.errors import AccessDenied, InvalidRequest, Throttled
from ..state.offsets import Offset, TimestampMs
from ..state.partition_view import PartitionView
from ..state.routing import Isolation, Tier
from .long_polls import LongPolls, Place

R = TypeVar("R")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
METADATA_CALLS = 8
PRINCIPALS = 10_000
"""Quotas remembered; the one unused longest is forgotten."""
PARTITIONS = 100_000
"""Partitions whose local start is remembered."""


class Reader(Protocol):
    """What the gateway needs of `fetch.reader.LogReader`. Thread-safe, blocking."""

    def topics(self) -> list[str]: ...

    def topic(self, name: str) -> LogicalTopic: ...

    def view(self, topic: str, partition: int) -> PartitionView: ...

    def bounds(self, topic: str, partition: int) -> LogicalBounds: ...

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int,
        isolation: Isolation,
        tier: Tier,
    ) -> Fetched: ...

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> tuple[Offset, TimestampMs] | None: ...


class Pools:
    """One of each kind, so that a cold scan never delays a hot read."""

    def __init__(self, settings: Gateway) -> None:
        self.local = Pool("gateway-local", settings.local_reads)
        self.remote = Pool("gateway-remote", settings.remote_reads)
        self.metadata = Pool("gateway-metadata", METADATA_CALLS)

    def close(self) -> None:
        for pool in (self.local, self.remote, self.metadata):
            pool.close()


class ClientLeft(Exception):
    """Nobody waits for the answer any more."""


class FetchService:
    """One gateway. ``hidden``: names of topics that are never served, beside Kafka's own internal ones."""

    def __init__(self, reader: Reader, settings: Gateway, clock: Clock, hidden: Iterable[str] = ()) -> None:
        self.reader, self.settings = reader, settings
        self.pools = Pools(settings)
        self.tail = LongPolls(self._end_of)
        self._clock = clock
        self._hidden = frozenset(hidden)
        self._quotas: LRUCache[str, ByteQuota] = LRUCache(PRINCIPALS)
        self._local_starts: LRUCache[tuple[str, int], Offset] = LRUCache(PARTITIONS)
        self._lock = threading.Lock()

    def serves(self, topic: str) -> bool:
        return not topic.startswith("__") and topic not in self._hidden

    def check_topic(self, topic: str) -> str:
        """The name itself. Raises InvalidRequest for what cannot be one, AccessDenied for internal topics."""
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise InvalidRequest("not a topic name: letters, digits, dots, underscores and hyphens are allowed")
        if not self.serves(topic):
            raise AccessDenied("internal topics are not served", topic=topic)
        return topic

    def charge(self, principal: str, size: int) -> None:
        """Throttled while a principal's quota is in debt. Answers are never cut: what is too much is paid later."""
        if self.settings.quota == 0:
            return
        with self._lock:
            quota = self._quotas.get(principal)
            if quota is None:
                quota = self._quotas[principal] = ByteQuota(self._clock, self.settings.quota)
        seconds = quota.try_take(size)
        if seconds > 0:
            raise Throttled("over quota", retry_after=max(1, round(seconds + 0.5)))

    async def local_start(self, topic: str, partition: int) -> Offset:
        """Where the local tier begins, as last seen. A hint: it chooses a pool, the read itself finds out."""
        with self._lock:
            known = self._local_starts.get((topic, partition))
        if known is not None:
            return known
        bounds = await self.pools.metadata.run(lambda: self.reader.bounds(topic, partition))
        self.saw(topic, partition, bounds)
        return bounds.local_start

    def saw(self, topic: str, partition: int, bounds: LogicalBounds) -> None:
        """What an answer said of the bounds."""
        with self._lock:
            self._local_starts[topic, partition] = bounds.local_start

    async def _end_of(self, place: Place) -> Offset:
        topic, partition, isolation = place
        return (await self.pools.metadata.run(lambda: self.reader.bounds(topic, partition))).end(isolation)

    def close(self) -> None:
        self.pools.close()


def service_of(request: Request) -> FetchService:
    """The app's."""
    found = request.app.state.service
    assert isinstance(found, FetchService)
    return found


async def unless_gone(request: Request, work: Coroutine[Any, Any, R]) -> R:
    """What ``work`` returns; cancelled when the client leaves before that (ClientLeft)."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientLeft
        return task.result()
    finally:
        task.cancel()
        gone.cancel()


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
