"""The service that all routes call: the reader behind its pools, the limits, and the caller's rights."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cachetools import LRUCache
from fastapi import Request

from ..app.opening.agent_boards import AgentBoards
from ..app.operating.plans import Plans
from ..broker.callers import Callers
from ..broker.error_codes import LeaderMoved
from ..fetch.piece import Fetched, LogicalBounds
from ..fetch.reader import LogReader
from ..runtime.clock import Clock
from ..runtime.gateway_settings import Gateway
from ..runtime.pool import Pool
from ..runtime.quota import ByteQuota
from ..state.errors import (
    AccessDenied,
    BrokerUnavailable,
    InvalidRequest,
    Throttled,
    TimedOut,
    Unavailable,
    UnknownTopic,
)
from ..state.offsets import Offset
from ..state.routing import Isolation, Tier
from ..values.registered_values import RegisteredValues
from .answer_memory import AnswerMemory
from .auth import CALLER
from .credentials import ANYBODY, Caller
from .look import Look
from .rights import CallerRights, GroupStandings

R = TypeVar("R")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
METADATA_CALLS = 8
"""The most concurrent calls of each pool that reads no records."""
SILENT_S = 5.0
"""Seconds after an outage was noticed in which data that a view has is read without brokers: requests would wait."""
TIERED_AGE_S = 2.0
"""Seconds that the list of tiered topics is cached."""
PRINCIPALS = 10_000
"""The most quotas in memory. The least recently used quota is evicted."""
PARTITIONS = 100_000
"""The most partitions whose local start is cached."""
LOOK_EVERY_S = 0.1
"""Seconds between two requests for an end, and so the most that a long poll delays a record."""

Place = tuple[str, int, Isolation]
Tables = Callable[[], Sequence[Mapping[str, Any]]]
"""Returns the tables that follow topics, with the fields of `models.Table` at least."""


@dataclass(eq=False, slots=True)
class _Watch:
    """The wait for one place. ``next_look`` is set and replaced by every look, so a waiter sees each result once."""

    next_look: asyncio.Event = field(default_factory=asyncio.Event)
    end: Offset = field(default=Offset(-1))
    failure: Exception | None = None
    waiters: int = 0
    task: asyncio.Task[None] | None = None


class LongPolls:
    """Waits for partitions to grow. ``end_of`` requests an end; it never runs twice at once for the same place."""

    def __init__(self, end_of: Callable[[Place], Awaitable[Offset]]) -> None:
        self._end_of = end_of
        self._watches: dict[Place, _Watch] = {}
        self._closed = False

    def close(self) -> None:
        """End all waits: a stopping gateway answers at once. Call it on the event loop."""
        self._closed = True
        for watch in self._watches.values():
            watch.next_look.set()

    async def wait_beyond(self, place: Place, offset: int, seconds: float) -> None:
        """Wait until the end of the log is above ``offset``, at most ``seconds``. Raises an error of ``end_of``."""
        if self._closed:
            return
        watch = self._watches.setdefault(place, _Watch())
        watch.waiters += 1
        if watch.task is None:
            watch.task = asyncio.create_task(self._look(place, watch))
        try:
            async with asyncio.timeout(seconds):
                while watch.end <= offset and not self._closed:
                    await watch.next_look.wait()
                    if watch.failure is not None:
                        raise watch.failure
        except TimeoutError:
            return
        finally:
            watch.waiters -= 1
            if watch.waiters == 0:
                watch.task.cancel()
                if self._watches.get(place) is watch:
                    del self._watches[place]

    async def _look(self, place: Place, watch: _Watch) -> None:
        while True:
            try:
                watch.end = await self._end_of(place)
            except Exception as error:  # each waiting call raises it
                watch.failure = error
            watch.next_look.set()
            watch.next_look = asyncio.Event()
            if watch.failure is not None:
                # the next call begins its own watch
                if self._watches.get(place) is watch:
                    del self._watches[place]
                return
            await asyncio.sleep(LOOK_EVERY_S)


class Pools:
    """One pool for each kind of work, so that a scan of the remote tier never delays a local read."""

    def __init__(self, settings: Gateway) -> None:
        self.local = Pool("gateway-local", settings.local_reads)
        self.remote = Pool("gateway-remote", settings.remote_reads)
        self.metadata = Pool("gateway-metadata", METADATA_CALLS)
        self.rights = Pool("gateway-rights", METADATA_CALLS)
        self.times = Pool("gateway-times", METADATA_CALLS)
        self.plans = Pool("gateway-plans", METADATA_CALLS)
        self.agents = Pool("gateway-agents", METADATA_CALLS)
        self.decoding = Pool("gateway-decoding", METADATA_CALLS)
        self.groups = Pool("gateway-groups", METADATA_CALLS)
        self.tables = Pool("gateway-tables", 1)

    def close(self) -> None:
        for pool in vars(self).values():
            pool.close()


class ClientLeft(BaseException):
    """The client has disconnected. This is no Exception, so no handler answers it. `HttpConnection` catches it."""


class FetchService:
    """One gateway. ``hidden``: names of topics that are never served, in addition to Kafka's own internal topics.

    ``callers`` requests callers' rights from the brokers; None: they know no users. ``plans`` None: no plans are made.
    ``groups`` requests consumer groups; None: no group is known. ``values`` decodes values by a schema registry.
    ``tables`` may be replaced by what lists tables.
    """

    def __init__(
        self,
        reader: LogReader,
        settings: Gateway,
        clock: Clock,
        hidden: Iterable[str] = (),
        callers: Callers | None = None,
        plans: Plans | None = None,
        groups: Callers | None = None,
        values: RegisteredValues | None = None,
    ) -> None:
        self.agents = frozenset(host.lower() for host in settings.agents)
        self.plans, self.boards, self.values = plans, AgentBoards(clock, self.agents), values
        self.reader, self.settings, self.clock = reader, settings, clock
        self.tables: Tables = tuple
        self.pools = Pools(settings)
        self.memory = AnswerMemory(settings.memory)
        auth = settings.auth
        self.rights = CallerRights(callers, self.pools.rights, clock, auth.cache, by_kafka=auth.rights == "kafka")
        self.groups = GroupStandings(groups, self.pools.groups, clock, auth.cache, by_kafka=auth.rights == "kafka")
        self.tail = LongPolls(self._end_of)
        self._hidden = frozenset(hidden)
        self._outage_until = float("-inf")
        self._patterns = [re.compile(pattern) for pattern in settings.topics]
        self._tiered: tuple[float, frozenset[str]] = float("-inf"), frozenset()
        self._quotas: LRUCache[str, ByteQuota] = LRUCache(PRINCIPALS)
        self._local_starts: LRUCache[tuple[str, int], Offset] = LRUCache(PARTITIONS)
        self._lock = threading.Lock()

    def serves(self, topic: str) -> bool:
        """Return whether the settings allow the topic. Internal and hidden topics are never served."""
        if topic.startswith("__") or topic in self._hidden:
            return False
        return not self._patterns or any(pattern.fullmatch(topic) for pattern in self._patterns)

    async def permit(self, caller: Caller, topic: str, *, read: bool = False) -> str:
        """Return the topic's name. ``read``: the caller needs READ, not only DESCRIBE.

        Raises InvalidRequest if it cannot be a name. Raises UnknownTopic if the topic does not exist, is not served, or
        may not be known to the caller: the message is the same, so that it reveals nothing. Also raises AccessDenied
        and NotAuthenticated.
        """
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise InvalidRequest("not a topic name: letters, digits, dots, underscores and hyphens are allowed")
        rights = (await self.rights.of(caller, [topic]))[topic]
        if not rights.describe or not self.serves(topic) or not (self._patterns or await self._is_tiered(topic)):
            raise UnknownTopic("no such topic", topic=topic)
        if read and not rights.read:
            raise AccessDenied("this user may not read the topic", topic=topic)
        return topic

    def look(self) -> Look:
        return Look(self.reader, self.in_outage, self.is_outage)

    @property
    def in_outage(self) -> bool:
        """Return whether an outage of the brokers was noticed in the last `SILENT_S`."""
        return self.clock.monotonic() < self._outage_until

    def is_outage(self, error: BaseException) -> bool:
        """Return whether the error means that no broker answers. If so, `in_outage` is true for the next `SILENT_S`."""
        if not isinstance(error, BrokerUnavailable | TimedOut) or isinstance(error, LeaderMoved):
            return False
        self._outage_until = self.clock.monotonic() + SILENT_S
        return True

    def restricted(self, caller: Caller) -> str | None:
        """Return the caller's user if it may not see all names of groups and users. Returns None if it may see all."""
        return caller.principal if self.settings.auth.rights == "kafka" and caller is not ANYBODY else None

    async def topics(self, caller: Caller) -> list[str]:
        """Return the names of the tiered topics that the caller may know."""
        names = [name for name in await self.pools.metadata.run(self.look().topics) if self.serves(name)]
        rights = await self.rights.of(caller, names)
        return [name for name in names if rights[name].describe]

    async def _is_tiered(self, topic: str) -> bool:
        at, tiered = self._tiered
        now = self.clock.monotonic()

        def look() -> bool:
            names = frozenset(self.reader.topics())
            self._tiered = now, names
            return topic in names or self._is_in_view(topic)

        if now - at < TIERED_AGE_S and topic in tiered:
            return True
        failure: Unavailable = BrokerUnavailable("no broker answers")
        if not self.in_outage:
            try:
                return await self.pools.metadata.run(look)
            except Unavailable as error:
                self.is_outage(error)
                failure = error
        if topic in tiered or await self.pools.metadata.run(lambda: self.reader.tiered_without_brokers(topic)):
            return True  # in the last list, or in the view
        raise failure

    def _is_in_view(self, topic: str) -> bool:
        """Return whether the current view has the topic, or the remote tier still has it after it was deleted."""
        try:
            return self.reader.topic(topic).gone or self.reader.is_tiered(topic)
        except (UnknownTopic, AccessDenied):  # the gateway's own login may not see it
            return False

    def charge(self, principal: str, size: int) -> None:
        """Charge ``size`` bytes. Raises Throttled while the principal's quota is in debt. Answers are never cut."""
        quota = self._quota(principal)
        seconds = 0.0 if quota is None else quota.try_take(size)
        if seconds > 0:
            raise Throttled("over quota", retry_after=max(1, round(seconds + 0.5)))

    def owe(self, principal: str, size: int) -> None:
        """Charge for work that is done already. It becomes a debt and is never refused."""
        quota = self._quota(principal)
        if quota is not None and size > 0:
            quota.owe(size)

    def _quota(self, principal: str) -> ByteQuota | None:
        if self.settings.quota == 0:
            return None
        with self._lock:
            quota = self._quotas.get(principal)
            if quota is None:
                quota = self._quotas[principal] = ByteQuota(self.clock, self.settings.quota)
        return quota

    async def local_start(self, topic: str, partition: int) -> Offset:
        """Return the local start as last seen. It is a hint that chooses a pool; the read itself checks it."""
        with self._lock:
            start = self._local_starts.get((topic, partition))
        if start is not None:
            return start
        bounds = await self.pools.metadata.run(lambda: self.reader.bounds(topic, partition))
        self.remember(topic, partition, bounds)
        return bounds.local_start

    def remember(self, topic: str, partition: int, bounds: LogicalBounds) -> None:
        with self._lock:
            self._local_starts[topic, partition] = bounds.local_start

    def fetch_remote(self, topic: str, partition: int, offset: Offset, max_bytes: int, isolation: Isolation) -> Fetched:
        """Return a piece of the remote tier alone, from the view alone while brokers do not answer. Blocks."""
        place = topic, partition, offset
        if not self.in_outage:
            try:
                return self.reader.fetch(*place, max_bytes=max_bytes, isolation=isolation, tier=Tier.REMOTE)
            except (BrokerUnavailable, TimedOut) as error:
                self.is_outage(error)
        return self.reader.fetch_without_brokers(*place, max_bytes=max_bytes, isolation=isolation)

    async def _end_of(self, place: Place) -> Offset:
        topic, partition, isolation = place
        return (await self.pools.metadata.run(lambda: self.reader.bounds(topic, partition))).end(isolation)

    def close(self) -> None:
        self.pools.close()
        self.boards.close()


async def service_of(request: Request) -> FetchService:
    """Return the app's service. All dependencies are coroutines, because FastAPI runs other functions in a thread."""
    service = request.app.state.service
    assert isinstance(service, FetchService)
    return service


def caller_of(request: Request) -> Caller:
    caller = request.scope[CALLER]
    assert isinstance(caller, Caller)
    return caller


async def run_until_left(request: Request, work: Coroutine[Any, Any, R]) -> R:
    """Return the result of ``work``. If the client disconnects first, cancel ``work`` and raise ClientLeft."""
    task = asyncio.ensure_future(work)
    left = asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientLeft
        return task.result()
    finally:
        task.cancel()
        left.cancel()


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
