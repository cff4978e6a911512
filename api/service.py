"""The service that all routes call: the reader behind its pools, the limits, and the caller's rights."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Coroutine, Iterable
from enum import Enum
from typing import Any, TypeVar

from cachetools import LRUCache
from fastapi import Request

from ..app.opening.agent_boards import AgentBoards
from ..app.operating.plans import Plans
from ..broker.error_codes import LeaderMoved
from ..fetch.piece import Fetched, LogicalBounds
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
from .group_standings import AskingGroups, GroupStandings
from .long_polls import LongPolls, Place
from .look import GatewayReader, Look
from .rights import Asking, CallerRights

R = TypeVar("R")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
METADATA_CALLS = 8
SILENT_S = 5.0
"""Seconds that no broker is asked for what a view can answer, after none answered: each time somebody would wait."""
TIERED_AGE_S = 2.0
"""Seconds that the list of tiered topics is used."""
PRINCIPALS = 10_000
"""Quotas remembered; the one unused longest is forgotten."""
PARTITIONS = 100_000
"""Partitions whose local start is remembered."""


class Need(Enum):
    """The right that a call needs on a topic."""

    DESCRIBE = "describe"
    READ = "read"


class Pools:
    """One of each kind, so that a cold scan never delays a hot read."""

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

    def close(self) -> None:
        alone = (self.rights, self.times, self.plans, self.agents, self.groups, self.decoding)
        for pool in (self.local, self.remote, self.metadata, *alone):
            pool.close()


class ClientLeft(BaseException):
    """The client has left. It is no Exception, so that no handler makes an answer of it: the connection catches it."""


class FetchService:
    """One gateway. ``hidden``: names of topics that are never served, in addition to Kafka's own internal topics.

    ``asking`` asks the brokers about callers; None: they know no users. ``plans`` None: no plan is made. ``groups``
    asks the brokers about consumer groups; None: nothing is known of them. ``values`` decodes by a schema registry.
    """

    def __init__(
        self,
        reader: GatewayReader,
        settings: Gateway,
        clock: Clock,
        hidden: Iterable[str] = (),
        asking: Asking | None = None,
        plans: Plans | None = None,
        groups: AskingGroups | None = None,
        values: RegisteredValues | None = None,
    ) -> None:
        self.agents = frozenset(host.lower() for host in settings.agents)
        self.plans, self.boards, self.values = plans, AgentBoards(clock, self.agents), values
        self.reader, self.settings, self.clock = reader, settings, clock
        self.pools = Pools(settings)
        self.memory = AnswerMemory(settings.memory)
        auth = settings.auth
        self.rights = CallerRights(asking, self.pools.rights, clock, auth.cache, by_kafka=auth.rights == "kafka")
        self.groups = GroupStandings(groups, self.pools.groups, clock, auth.cache, by_kafka=auth.rights == "kafka")
        self.tail = LongPolls(self._end_of)
        self._hidden = frozenset(hidden)
        self._silent_until = self._dark_until = float("-inf")
        self._patterns = [re.compile(pattern) for pattern in settings.topics]
        self._tiered: tuple[float, frozenset[str]] = float("-inf"), frozenset()
        self._quotas: LRUCache[str, ByteQuota] = LRUCache(PRINCIPALS)
        self._local_starts: LRUCache[tuple[str, int], Offset] = LRUCache(PARTITIONS)
        self._looking: asyncio.Task[bool] | None = None
        """A look for tiered topics ahead of time. A call that needs the list reports what a look fails with."""
        self._lock = threading.Lock()

    def serves(self, topic: str) -> bool:
        """Return whether the settings allow the topic. Internal and hidden topics are never served."""
        if topic.startswith("__") or topic in self._hidden:
            return False
        return not self._patterns or any(pattern.fullmatch(topic) for pattern in self._patterns)

    async def permit(self, caller: Caller, topic: str, need: Need) -> str:
        """The topic's name. Raises InvalidRequest for what cannot be one, UnknownTopic for one that the caller may not
        know of, or that is not served, in the same words as for one that is not there; AccessDenied, NotAuthenticated.
        """
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise InvalidRequest("not a topic name: letters, digits, dots, underscores and hyphens are allowed")
        rights = (await self.rights.of(caller, [topic]))[topic]
        if not rights.describe or not self.serves(topic) or not (self._patterns or await self._is_tiered(topic)):
            raise UnknownTopic("no such topic", topic=topic)
        if need is Need.READ and not rights.read:
            raise AccessDenied("this user may not read the topic", topic=topic)
        return topic

    def look(self) -> Look:
        """Return a look at topics for one answer."""
        return Look(self.reader, self.is_dark, self.fell_dark)

    @property
    def is_dark(self) -> bool:
        """Return whether no broker answered in the last `SILENT_S`."""
        return self.clock.monotonic() < self._dark_until

    def fell_dark(self, error: BaseException) -> bool:
        """Return whether the error says that no broker answers; then none is asked for `SILENT_S`."""
        if not isinstance(error, BrokerUnavailable | TimedOut) or isinstance(error, LeaderMoved):
            return False
        self._dark_until = self.clock.monotonic() + SILENT_S
        return True

    def restricted(self, caller: Caller) -> str | None:
        """The user who may not know all names of groups and users; None: who asks sees what the gateway itself may."""
        return caller.principal if self.settings.auth.rights == "kafka" and caller is not ANYBODY else None

    async def topics(self, caller: Caller) -> list[str]:
        """Names of tiered topics that the caller may know of."""
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
            if now - at > TIERED_AGE_S / 2 and (self._looking is None or self._looking.done()):
                self._looking = asyncio.ensure_future(self.pools.metadata.run(look))
                self._looking.add_done_callback(lambda task: task.cancelled() or task.exception())
            return True
        failure: Unavailable = BrokerUnavailable("no broker answers")
        if not self.is_dark:
            try:
                return await self.pools.metadata.run(look)
            except Unavailable as error:
                self.fell_dark(error)
                failure = error
        if topic in tiered or await self.pools.metadata.run(lambda: self.reader.tiered_without_brokers(topic)):
            return True  # as it was last seen
        raise failure

    def _is_in_view(self, topic: str) -> bool:
        """Return whether the current view has the topic, or the remote tier still has it after it was deleted."""
        try:
            return self.reader.topic(topic).gone or self.reader.is_tiered(topic)
        except (UnknownTopic, AccessDenied):  # nor may the gateway itself know of it
            return False

    def charge(self, principal: str, size: int) -> None:
        """Throttled while a principal's quota is in debt. Answers are never cut: what is too much is paid later."""
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
        """Return the local start as last seen. It is a hint that chooses a pool; the read itself finds the truth."""
        with self._lock:
            start = self._local_starts.get((topic, partition))
        if start is not None:
            return start
        bounds = await self.pools.metadata.run(lambda: self.reader.bounds(topic, partition))
        self.saw(topic, partition, bounds)
        return bounds.local_start

    def saw(self, topic: str, partition: int, bounds: LogicalBounds) -> None:
        """Remember the bounds of an answer."""
        with self._lock:
            self._local_starts[topic, partition] = bounds.local_start

    def fetch_remote(self, topic: str, partition: int, offset: Offset, max_bytes: int, isolation: Isolation) -> Fetched:
        """Return a piece of the remote tier alone, by the current view while brokers do not answer. Blocks."""
        reader, now = self.reader, self.clock.monotonic
        if now() >= self._silent_until:
            try:
                return reader.fetch(
                    topic, partition, offset, max_bytes=max_bytes, isolation=isolation, tier=Tier.REMOTE
                )
            except (BrokerUnavailable, TimedOut):
                self._silent_until = now() + SILENT_S
        return reader.fetch_without_brokers(topic, partition, offset, max_bytes=max_bytes, isolation=isolation)

    async def _end_of(self, place: Place) -> Offset:
        topic, partition, isolation = place
        return (await self.pools.metadata.run(lambda: self.reader.bounds(topic, partition))).end(isolation)

    def close(self) -> None:
        self.pools.close()
        self.boards.close()


async def service_of(request: Request) -> FetchService:
    """The app's. A coroutine, as every dependency: FastAPI runs others in a thread."""
    service = request.app.state.service
    assert isinstance(service, FetchService)
    return service


def caller_of(request: Request) -> Caller:
    """Return the caller that `auth.py` found."""
    caller = request.scope[CALLER]
    assert isinstance(caller, Caller)
    return caller


async def unless_gone(request: Request, work: Coroutine[Any, Any, R]) -> R:
    """Return the result of ``work``. Cancels it and raises ClientLeft if the client leaves before."""
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
