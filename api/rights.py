"""Cache of callers' rights, as Kafka reports them, for `gateway.auth.cache` and never longer, not even in an outage."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

from cachetools import LRUCache

from ..broker.callers import NONE, Rights
from ..broker.sasl import Login
from ..runtime.clock import Clock
from ..runtime.pool import Pool
from ..state.errors import AccessDenied
from .credentials import ANYBODY, Caller
from .problems import NotAuthenticated

EVERYTHING = Rights(describe=True, read=True)
REMEMBERED = 100_000
"""The most cached rights, each of one caller on one topic. The least recently used entry is evicted."""
LOCKS = 64
_PROVEN = ""
"""A key of the cache in place of a topic's name. Its entry means that the brokers accepted the caller's login."""


class Asking(Protocol):
    """The part of `broker.callers.Callers` that is used here. Thread-safe, blocking."""

    def rights(self, login: Login, topics: Sequence[str]) -> dict[str, Rights]: ...

    def rights_of(self, user: str, topics: Sequence[str]) -> dict[str, Rights]: ...


class CallerRights:
    """Requests the rights of callers from Kafka, with at most one request at a time for each caller.

    ``asking`` None: no request is made, and no caller has a login. ``by_kafka`` False: callers may read all topics.
    """

    def __init__(self, asking: Asking | None, pool: Pool, clock: Clock, cache_s: float, *, by_kafka: bool) -> None:
        self._asking, self._pool, self._clock, self._cache_s, self._by_kafka = asking, pool, clock, cache_s, by_kafka
        self._cache: LRUCache[tuple[bytes, str], tuple[float, Rights]] = LRUCache(REMEMBERED)
        self._lock = threading.Lock()
        self._locks = [threading.Lock() for _ in range(LOCKS)]

    async def of(self, caller: Caller, topics: Sequence[str]) -> Mapping[str, Rights]:
        """Return the rights on each topic. Raises NotAuthenticated if the brokers refuse the caller or if the caller's
        token has expired, BrokerUnavailable or TimedOut if the brokers do not answer.
        """
        if caller is ANYBODY or (not self._by_kafka and caller.login is None):
            return dict.fromkeys(topics, EVERYTHING)
        if self._clock.now_ms() >= caller.until_ms:
            raise NotAuthenticated("the bearer token has expired")
        names = [*topics] if self._by_kafka else []
        if caller.login is not None:
            names.append(_PROVEN)  # also if no topic is named
        rights = self._remembered(caller, names)
        if len(rights) < len(names):
            rights = await self._pool.run(lambda: self._asked(caller, names))
        return rights if self._by_kafka else dict.fromkeys(topics, EVERYTHING)

    def _remembered(self, caller: Caller, topics: Sequence[str]) -> dict[str, Rights]:
        now, by_topic = self._clock.monotonic(), {}
        with self._lock:
            for topic in topics:
                at, rights = self._cache.get((caller.key, topic)) or (float("-inf"), NONE)
                if now - at < self._cache_s:
                    by_topic[topic] = rights
        return by_topic

    def _asked(self, caller: Caller, topics: Sequence[str]) -> dict[str, Rights]:
        with self._locks[caller.key[0] % LOCKS]:
            by_topic = self._remembered(caller, topics)
            missing = [topic for topic in topics if topic not in by_topic]
            if not missing:
                return by_topic
            at = self._clock.monotonic()  # before the request: its answer may be old already when it arrives
            answer = self._answer(caller, missing)
            with self._lock:
                for topic, rights in answer.items():
                    self._cache[caller.key, topic] = at, rights
            return by_topic | answer

    def _answer(self, caller: Caller, topics: Sequence[str]) -> dict[str, Rights]:
        assert self._asking is not None
        real_topics = [topic for topic in topics if topic != _PROVEN]
        if caller.login is None:
            return self._asking.rights_of(caller.principal, real_topics)
        try:
            answer = self._asking.rights(caller.login, real_topics)
        except AccessDenied as error:
            raise NotAuthenticated("Kafka refuses this user's credentials") from error
        return answer | dict.fromkeys(set(topics) - set(real_topics), NONE)
