"""Cache of consumer groups' committed offsets, as the brokers show them to each caller, for `gateway.auth.cache`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from cachetools import LRUCache

from ..broker.groups import GroupProblem, TopicGroups
from ..broker.sasl import Login
from ..runtime.clock import Clock
from ..runtime.pool import Pool
from ..state.errors import AccessDenied
from .credentials import ANYBODY, Caller
from .problems import NotAuthenticated

MAX_CACHED_POSITIONS = 500_000
"""The most positions in all cached answers together. An answer with more is not cached."""
LOCKS = 64
NO_BROKER_ASKED = TopicGroups((), (GroupProblem(None, "this gateway asks no broker about groups"),))


class AskingGroups(Protocol):
    """The part of `broker.callers.Callers` that is used here. Thread-safe, blocking."""

    def groups(self, login: Login | None, topic: str, partitions: Sequence[int]) -> TopicGroups: ...

    def groups_of(self, user: str, topic: str, partitions: Sequence[int]) -> TopicGroups: ...


class GroupStandings:
    """Caches the brokers' answers. Concurrent calls for the same caller and topic share one request.

    ``asking`` None: nothing is requested. ``by_kafka`` False: every caller sees the groups that tierstate's login sees.
    """

    def __init__(
        self, asking: AskingGroups | None, pool: Pool, clock: Clock, cache_s: float, *, by_kafka: bool
    ) -> None:
        self._asking, self._pool, self._clock, self._cache_s, self._by_kafka = asking, pool, clock, cache_s, by_kafka
        self._cache: LRUCache[tuple[bytes, str, int], tuple[float, TopicGroups]] = LRUCache(
            MAX_CACHED_POSITIONS, getsizeof=lambda entry: 1 + len(entry[1].positions)
        )
        self._lock = threading.Lock()
        self._locks = [threading.Lock() for _ in range(LOCKS)]

    async def of(self, caller: Caller, topic: str, partitions: int) -> TopicGroups:
        """Return the groups' positions on all partitions of the topic. ``partitions``: the number of partitions.

        Raises NotAuthenticated, AccessDenied, BrokerUnavailable, TimedOut, Throttled.
        """
        if self._asking is None:
            return NO_BROKER_ASKED
        who = caller if self._by_kafka else ANYBODY
        groups = self._cached(who, topic, partitions)
        return groups if groups is not None else await self._pool.run(lambda: self._request(who, topic, partitions))

    def now(self, caller: Caller, topic: str, partitions: int) -> TopicGroups:
        """Return the same as `of`. Blocks the calling thread while the brokers answer."""
        if self._asking is None:
            return NO_BROKER_ASKED
        return self._request(caller if self._by_kafka else ANYBODY, topic, partitions)

    def _cached(self, caller: Caller, topic: str, partitions: int) -> TopicGroups | None:
        with self._lock:
            at, groups = self._cache.get((caller.key, topic, partitions)) or (float("-inf"), None)
        return groups if self._clock.monotonic() - at < self._cache_s else None

    def _request(self, caller: Caller, topic: str, partitions: int) -> TopicGroups:
        with self._locks[hash((caller.key, topic)) % LOCKS]:
            groups = self._cached(caller, topic, partitions)
            if groups is None:
                at = self._clock.monotonic()  # before the request, for the reason in `rights.py`
                groups = self._answer(caller, topic, range(partitions))
                with self._lock:
                    if len(groups.positions) < MAX_CACHED_POSITIONS:
                        self._cache[caller.key, topic, partitions] = at, groups
            return groups

    def _answer(self, caller: Caller, topic: str, partitions: Sequence[int]) -> TopicGroups:
        assert self._asking is not None
        if caller is ANYBODY:
            return self._asking.groups(None, topic, partitions)
        if caller.login is None:
            return self._asking.groups_of(caller.principal, topic, partitions)
        try:
            return self._asking.groups(caller.login, topic, partitions)
        except AccessDenied as error:
            raise NotAuthenticated("Kafka refuses this user's credentials") from error
