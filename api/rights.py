"""What Kafka reports about callers: their rights on topics, and the positions of the groups that each caller may see.

Answers are cached for `gateway.auth.cache` and never longer, not even in an outage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

from cachetools import LRUCache

from ..broker.callers import NONE, Callers, Rights
from ..broker.groups import GroupProblem, TopicGroups
from ..runtime.clock import Clock
from ..runtime.pool import Pool
from ..state.errors import AccessDenied
from .credentials import ANYBODY, Caller
from .problems import NotAuthenticated

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
EVERYTHING = Rights(describe=True, read=True)
REMEMBERED = 100_000
"""The most cached rights, each of one caller on one topic. The least recently used entry is evicted."""
MAX_CACHED_POSITIONS = 500_000
"""The most positions in all cached answers about groups. An answer with more is not cached."""
LOCKS = 64
_PROVEN = ""
"""A key of the cache in place of a topic's name. Its entry means that the brokers accepted the caller's login."""
NO_BROKER_ASKED = TopicGroups((), (GroupProblem(None, "this gateway asks no broker about groups"),))


class _Answers(Generic[K, V]):
    """A cache of answers by caller and key, of at most ``most`` units of ``size_of``. Thread-safe."""

    def __init__(self, clock: Clock, cache_s: float, most: int, size_of: Callable[[V], int] = lambda value: 1) -> None:
        self._clock, self._cache_s = clock, cache_s
        self.cache: LRUCache[tuple[bytes, K], tuple[float, V]] = LRUCache(most, lambda entry: size_of(entry[1]))
        self._lock = threading.Lock()
        self._locks = [threading.Lock() for _ in range(LOCKS)]

    def cached(self, caller: Caller, keys: Sequence[K]) -> dict[K, V]:
        since = self._clock.monotonic() - self._cache_s
        with self._lock:
            entries = [(key, self.cache.get((caller.key, key))) for key in keys]
        return {key: entry[1] for key, entry in entries if entry is not None and entry[0] > since}

    def asked(
        self, caller: Caller, keys: Sequence[K], one_by_one: Hashable, ask: Callable[[Sequence[K]], Mapping[K, V]]
    ) -> dict[K, V]:
        """Return the answers, with those of ``ask`` for the keys that are not cached. Blocks.

        Calls with the same caller and ``one_by_one`` run one after another, so that they share a request. Raises
        NotAuthenticated if the brokers refuse the caller's login, and the errors of ``ask``.
        """
        with self._locks[hash((caller.key, one_by_one)) % LOCKS]:
            answers = self.cached(caller, keys)
            missing = [key for key in keys if key not in answers]
            if missing:
                at = self._clock.monotonic()  # before the request: its answer may be old already when it arrives
                try:
                    answers |= ask(missing)
                except AccessDenied as error:
                    if caller.login is None:
                        raise
                    raise NotAuthenticated("Kafka refuses this user's credentials") from error
                with self._lock:
                    for key in missing:
                        with suppress(ValueError):  # it is larger than the cache
                            self.cache[caller.key, key] = at, answers[key]
            return answers


class CallerRights:
    """Requests the rights of callers from Kafka, with at most one request at a time for each caller.

    ``asking`` None: no request is made, and no caller has a login. ``by_kafka`` False: callers may read all topics.
    """

    def __init__(self, asking: Callers | None, pool: Pool, clock: Clock, cache_s: float, *, by_kafka: bool) -> None:
        self._asking, self._pool, self._clock, self._by_kafka = asking, pool, clock, by_kafka
        self.answers = _Answers[str, Rights](clock, cache_s, REMEMBERED)

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
        rights = self.answers.cached(caller, names)
        if len(rights) < len(names):
            ask = partial(self._ask, caller)
            rights = await self._pool.run(lambda: self.answers.asked(caller, names, None, ask))
        return rights if self._by_kafka else dict.fromkeys(topics, EVERYTHING)

    def _ask(self, caller: Caller, names: Sequence[str]) -> Mapping[str, Rights]:
        assert self._asking is not None
        return {_PROVEN: NONE} | self._asking.rights(
            caller.login or caller.principal, [name for name in names if name != _PROVEN]
        )


class GroupStandings:
    """Requests the positions of groups. Concurrent calls for the same caller and topic share one request.

    ``asking`` None: nothing is requested. ``by_kafka`` False: every caller sees the groups that tierstate's login sees.
    """

    def __init__(self, asking: Callers | None, pool: Pool, clock: Clock, cache_s: float, *, by_kafka: bool) -> None:
        self._asking, self._pool, self._by_kafka = asking, pool, by_kafka
        self._answers = _Answers[tuple[str, int], TopicGroups](
            clock, cache_s, MAX_CACHED_POSITIONS, lambda groups: 1 + len(groups.positions)
        )

    async def of(self, caller: Caller, topic: str, partitions: int) -> TopicGroups:
        """Return the groups' positions on all partitions of the topic. ``partitions``: the number of partitions.

        Raises NotAuthenticated, AccessDenied, BrokerUnavailable, TimedOut, Throttled.
        """
        cached = self._answers.cached(self._who(caller), [(topic, partitions)])
        if cached:
            return cached[topic, partitions]
        return await self._pool.run(lambda: self.now(caller, topic, partitions))

    def now(self, caller: Caller, topic: str, partitions: int) -> TopicGroups:
        """Return the same as `of`. Blocks the calling thread while the brokers answer."""
        if (asking := self._asking) is None:
            return NO_BROKER_ASKED
        who, place = self._who(caller), (topic, partitions)
        name = None if who is ANYBODY else who.login or who.principal
        return self._answers.asked(
            who, [place], topic, lambda missing: {place: asking.groups(name, topic, range(partitions))}
        )[place]

    def _who(self, caller: Caller) -> Caller:
        return caller if self._by_kafka else ANYBODY
