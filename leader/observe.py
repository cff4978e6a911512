"""The broker's answers from which an agent decides: bounds, configuration, consumer groups. Slow answers are cached.

Configuration is at most 30 s old, and that of the tier-state topic 60 s. A group listing is at most 5 minutes old,
because a listing is expensive on a busy cluster. An old listing decides only whether a trim is worth trying: the trim
lists the groups again (`trimmer.py`). An incomplete listing (a coordinator was loading groups) is repeated after 30 s.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from ..broker.answers import Place
from ..broker.groups import GroupProblem, TopicGroups
from ..rules.decide import refusal
from ..rules.observed import NO_GROUPS, PROVEN, GroupsSeen, Observed, PrefixProof
from ..runtime.clock import Clock
from ..state.errors import AccessDenied, TierstateError, Unavailable, UnknownTopic
from ..state.ids import BrokerId, TopicIdPartition
from ..state.offsets import Offset, TimestampMs
from ..state.retention import TopicConfig
from ..state.routing import LocalBounds
from .term import TermContext

CONFIG_AGE_S = 30.0
GROUPS_AGE_S = 300.0
PROBLEM_AGE_S = 30.0
DRIFT_AGE_S = 60.0
AHEAD_AGE_S = 2.0
"""The greatest age of bounds that were requested ahead of a look. Irreversible operations request their own."""
BETWEEN_LOOKS_S = 5.0

V = TypeVar("V")
ArchiveProblem = Callable[[TopicIdPartition], str | None]
"""Returns how a partition's facts differ from their archive; None if they do not, or if no archive is kept."""


class _Aged(Generic[V]):
    """A cache with one value per topic. ``age`` returns after how many seconds a value is requested again."""

    def __init__(self, clock: Clock, age: Callable[[V], float], ask: Callable[[str], V]) -> None:
        self._clock, self._age, self._ask = clock, age, ask
        self._lock = threading.Lock()
        self._entries: dict[str, tuple[float, V]] = {}
        self._asking: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def last(self, topic: str) -> V | None:
        """Return the cached value, however old; None if there is none."""
        with self._lock:
            entry = self._entries.get(topic)
        return None if entry is None else entry[1]

    def old(self, topics: Collection[str]) -> list[str]:
        """Return the topics to request together. If any value is too old, these are all values past half their age.

        If no value is too old, return none. Missing values are too old. Forget topics that are not in ``topics``.
        """
        now = self._clock.monotonic()
        with self._lock:
            self._entries = {topic: entry for topic, entry in self._entries.items() if topic in topics}
            self._asking.clear()  # a thread that sends a request now keeps its lock
            entries = {topic: self._entries.get(topic) for topic in topics}
        worn = {topic: (now - each[0]) / self._age(each[1]) if each else 1.0 for topic, each in entries.items()}
        if all(share < 1.0 for share in worn.values()):
            return []
        return [topic for topic, share in worn.items() if share >= 0.5]

    def put(self, topic: str, value: V, at: float) -> bool:
        """Keep a value requested at ``at``, unless a later one is cached. Return whether it replaced another value."""
        with self._lock:
            before = self._entries.get(topic)
            if before is not None and before[0] > at:
                return False
            self._entries[topic] = (at, value)
        return before is not None and before[1] != value

    def get(self, topic: str, after: float | None = None) -> V:
        """Return the value. If several threads need it at once, only one sends the request.

        ``after``: the value must have been requested later than this; if None, it must not be older than its age.
        """
        with self._lock:
            topic_lock = self._asking[topic]
        with topic_lock:
            now = self._clock.monotonic()
            with self._lock:
                entry = self._entries.get(topic)
            if entry is not None and entry[0] > (now - self._age(entry[1]) if after is None else after):
                return entry[1]
            value = self._ask(topic)
            self.put(topic, value, now)
            return value


@dataclass(frozen=True, slots=True)
class _Listing:
    asked_at: TimestampMs
    groups: TopicGroups


class Observer:
    """Thread-safe. ``overrides`` returns a topic's configuration with tierstate's settings applied (`overridden`)."""

    def __init__(
        self,
        context: TermContext,
        groups: GroupPolicy,
        overrides: Callable[[str, TopicConfig], TopicConfig],
        topic_problems: Callable[[], list[str]] = list,
        waits: Callable[[TopicIdPartition, bool], None] = lambda partition, waits: None,
        archive_problem: ArchiveProblem = lambda partition: None,
        prefix: Callable[[], PrefixProof] = lambda: PROVEN,
    ) -> None:
        """``waits`` is called at each look: True if the last stable offset prevents the copy of a rolled segment."""
        self._archive_problem, self._respect, self._prefix = archive_problem, groups.respect, prefix
        broker, clock = context.broker, context.clock
        self._broker, self._log = broker, context.log
        self._overrides, self._clock, self._waits = overrides, clock, waits
        self._asked_ahead: dict[TopicIdPartition, tuple[float, LocalBounds | TierstateError]] = {}
        self._looked_ahead = float("-inf")
        self._configs = _Aged(clock, lambda _: CONFIG_AGE_S, lambda topic: overrides(topic, broker.config(topic)))
        self._groups = _Aged(clock, self._groups_age, self._list_groups)
        self._holds = GroupHolds(groups, clock)
        self._drift = _Aged(clock, lambda _: DRIFT_AGE_S, lambda _: _first_problem(topic_problems))

    def __call__(self, partition: TopicIdPartition, name: str) -> Observed:
        """Return all data for a decision. Raises Fenced if the partition left the disk, BrokerUnavailable kinds."""
        state = self.local_log(partition, name)
        state = replace(state, drift=self._drift.get("") or self._archive_problem(partition), prefix=self._prefix())
        if not self._respect or refusal(state.config) is not None:
            return state
        return replace(state, groups=self._seen(partition, name, state.bounds, self._groups.get(name)))

    def local_log(self, partition: TopicIdPartition, name: str) -> Observed:
        """Return the observations of the broker and its disks. Neither the store nor any group is queried.

        Also calls ``waits``. Raises the errors of `__call__`.
        """
        bounds = self._bounds(partition, name)
        local = self._log.snapshot(partition, name, bounds.local_start)
        self._waits(partition, bool(local.segments) and local.segments[-1].base_offset > bounds.last_stable_offset)
        return Observed(local.segments, local.checkpoint, local.lineage, bounds, self._configs.get(name), NO_GROUPS)

    def groups_after(
        self, partition: TopicIdPartition, name: str, bounds: LocalBounds, moment: float
    ) -> Mapping[str, Offset] | None:
        """Return the lowest offset each group still needs, from a listing requested after ``moment`` (monotonic).

        Returns None if not all groups are known. The next look uses the listing too. Calls that arrive during another
        listing share the listing after it.
        """
        if not self._respect:
            return {}
        return self._seen(partition, name, bounds, self._groups.get(name, moment)).holds

    def _seen(self, partition: TopicIdPartition, name: str, bounds: LocalBounds, listing: _Listing) -> GroupsSeen:
        groups = listing.groups
        return GroupsSeen(
            self._holds.holds(name, partition.partition, groups, bounds),
            self._holds.unknown(groups),
            frozenset(
                each.group
                for each in groups.positions
                if each.partition == partition.partition and each.committed is None
            ),
            listing.asked_at,
        )

    def _bounds(self, partition: TopicIdPartition, name: str) -> LocalBounds:
        """Return bounds that were requested ahead if they are recent, and forget them; otherwise request them now."""
        at, answer = self._asked_ahead.pop(partition, (0.0, None))
        if answer is None or self._clock.monotonic() - at >= AHEAD_AGE_S:
            return self._broker.bounds(name, partition.partition, broker=self._log.broker_of(partition))
        if isinstance(answer, TierstateError):
            raise answer
        return answer

    def ahead(self, due: Mapping[TopicIdPartition, str], topics: Collection[str]) -> set[str]:
        """Send together the requests of several looks: bounds of ``due`` partitions, topic configurations, groups.

        ``topics``: the topics of all led partitions. Returns the topics whose configuration changed. Raises nothing:
        looks repeat a request that fails here, and report its error.
        """
        now = self._clock.monotonic()
        if len(due) > 1:
            answers = self._all_bounds(due)
            # recent answers are kept: a partition that waits for a thread has not been looked at yet
            for place in [each for each, (at, _) in self._asked_ahead.copy().items() if now - at >= AHEAD_AGE_S]:
                self._asked_ahead.pop(place, None)
            self._asked_ahead.update((each, (now, answer)) for each, answer in answers.items())
        if not due and now - self._looked_ahead < BETWEEN_LOOKS_S:
            return set()
        self._looked_ahead = now
        changed = self._all_configs(topics)
        if due and self._respect:
            self._all_groups(topics)
        return changed

    def _all_bounds(
        self, due: Mapping[TopicIdPartition, str]
    ) -> Mapping[TopicIdPartition, LocalBounds | TierstateError]:
        by_broker: defaultdict[BrokerId, dict[TopicIdPartition, Place]] = defaultdict(dict)
        for each, name in due.items():
            by_broker[self._log.broker_of(each)][each] = name, each.partition
        bounds = dict[TopicIdPartition, LocalBounds | TierstateError]()
        for broker, places in by_broker.items():
            try:
                answers = self._broker.bounds_of(places.values(), broker=broker)
                bounds |= {each: answers[place] for each, place in places.items()}
            except TierstateError as error:
                bounds |= dict.fromkeys(places, error)
        return bounds

    def _all_configs(self, topics: Collection[str]) -> set[str]:
        old, now = self._configs.old(topics), self._clock.monotonic()
        try:
            answers = self._broker.configs(old, broker=self._log.broker) if old else {}
        except TierstateError:
            return set()
        configs = {topic: config for topic, config in answers.items() if isinstance(config, TopicConfig)}
        put, overrides = self._configs.put, self._overrides
        return {topic for topic, config in configs.items() if put(topic, overrides(topic, config), now)}

    def _all_groups(self, topics: Collection[str]) -> None:
        configs = {topic: self._configs.last(topic) for topic in topics}
        tiered = [topic for topic, config in configs.items() if config is not None and refusal(config) is None]
        old, now, at = self._groups.old(tiered), self._clock.monotonic(), self._clock.now_ms()
        try:
            listings = self._broker.groups_of(old) if old else {}
        except (Unavailable, AccessDenied) as error:
            listings = dict.fromkeys(old, _no_groups(error))
        for topic, groups in listings.items():
            self._groups.put(topic, _Listing(at, groups), now)

    def _groups_age(self, listing: _Listing) -> float:
        return PROBLEM_AGE_S if self._holds.unknown(listing.groups) else GROUPS_AGE_S

    def _list_groups(self, topic: str) -> _Listing:
        """List a topic's groups. If Kafka does not answer, the listing is marked incomplete, which prevents trims."""
        at = self._clock.now_ms()
        try:
            return _Listing(at, self._broker.groups(topic))
        except (Unavailable, AccessDenied) as error:
            return _Listing(at, _no_groups(error))


def _no_groups(error: TierstateError) -> TopicGroups:
    return TopicGroups((), (GroupProblem(None, str(error)),))


def _first_problem(topic_problems: Callable[[], list[str]]) -> str | None:
    """Return the tier-state topic's first problem, or the error of a check that failed; None if it is safe."""
    try:
        return next(iter(topic_problems()), None)
    except (Unavailable, AccessDenied, UnknownTopic) as error:
        return str(error)


@dataclass(frozen=True, slots=True)
class GroupPolicy:
    """``[trim] respect_groups``, ``exclude_groups`` and ``group_hold_max`` in seconds."""

    respect: bool
    excluded: tuple[str, ...]
    hold_max: float

    def ignores(self, group: str) -> bool:
        return any(re.fullmatch(pattern, group) for pattern in self.excluded)


class GroupHolds:
    """Which offsets groups still need, so that trimming does not take them away; since when each has been there.

    Kafka silently resets a consumer without the proxy that falls below the local start. A group needs its committed
    offset; a group with an assigned member and no commit needs the local start. A group no longer counts if it has
    unread records but did not move for more than ``trim.group_hold_max`` seconds. This bounds how long an abandoned
    group keeps disk space in use. It takes no records from a group that still reads, however slowly. A restarted agent
    begins to wait again. Thread-safe.
    """

    def __init__(self, policy: GroupPolicy, clock: Clock) -> None:
        self._policy, self._clock = policy, clock
        self._lock = threading.Lock()
        self._standing: dict[tuple[str, int], dict[str, tuple[Offset | None, float]]] = {}

    def unknown(self, groups: TopicGroups) -> str | None:
        """Return why the listing may lack groups that are not excluded; None if it is complete."""
        return groups.why_incomplete(self._policy.ignores)

    def holds(
        self, topic: str, partition: int, groups: TopicGroups, bounds: LocalBounds
    ) -> Mapping[str, Offset] | None:
        """Return the lowest offset each group still needs; None if not all groups are known, which prevents trims."""
        if self.unknown(groups) is not None:
            return None
        behind = {
            each.group: each.committed
            for each in groups.positions
            if each.partition == partition
            and not self._policy.ignores(each.group)
            and (each.committed is None or each.committed < bounds.high_watermark)
        }
        now = self._clock.monotonic()
        with self._lock:
            earlier = self._standing.get((topic, partition), {})
            current = {
                group: before if (before := earlier.get(group)) and before[0] == committed else (committed, now)
                for group, committed in behind.items()
            }
            self._standing[topic, partition] = current
        return {
            group: bounds.local_start if committed is None else committed
            for group, (committed, since) in current.items()
            if now - since <= self._policy.hold_max
        }
