"""What an agent asks the broker before it decides: bounds, configuration, who still reads. Slow answers are cached.

Configuration is at most 30 s old (the tier-state topic's own 60 s), a group listing at most 5 minutes: a listing is
expensive on a busy cluster. An old one decides only whether it is worth asking: a trim asks again (`trimmer.py`). One
that is not whole (a coordinator was loading its groups) is asked for again after 30 s.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from ..broker.groups import GroupProblem, TopicGroups
from ..rules.decide import refusal
from ..rules.observed import NO_GROUPS, PROVEN, GroupsSeen, Observed, PrefixProof
from ..runtime.clock import Clock
from ..state.errors import AccessDenied, TierstateError, Unavailable, UnknownTopic
from ..state.ids import TopicIdPartition
from ..state.offsets import Offset, TimestampMs
from ..state.routing import LocalBounds
from ..state.topics import TopicConfig
from .group_holds import GroupHolds, GroupPolicy
from .term import Seat

CONFIG_AGE_S = 30.0
GROUPS_AGE_S = 300.0
PROBLEM_AGE_S = 30.0
DRIFT_AGE_S = 60.0
AHEAD_AGE_S = 2.0
"""How old bounds may be that were asked for ahead of a look. Acts that cannot be taken back ask for themselves."""
BETWEEN_LOOKS_S = 5.0

V = TypeVar("V")
ArchiveProblem = Callable[[TopicIdPartition], str | None]
"""Why what the topic says of a partition is not what its archive has; None: it is, or no archive is kept."""


def no_archive_problem(partition: TopicIdPartition) -> None:
    """Where no archive is kept."""


def always_proven() -> PrefixProof:
    """Where no other cluster can be."""
    return PROVEN


class _Aged(Generic[V]):
    """Values by topic, asked again when they are older than ``age`` says, in seconds."""

    def __init__(self, clock: Clock, age: Callable[[V], float], ask: Callable[[str], V]) -> None:
        self._clock, self._age, self._ask = clock, age, ask
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, V]] = {}
        self._asking: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def last(self, topic: str) -> V | None:
        """However old; None: nothing is known."""
        with self._lock:
            known = self._known.get(topic)
        return None if known is None else known[1]

    def old(self, topics: Collection[str]) -> list[str]:
        """Those that must be asked again, with those that soon must: they are asked together. All others are forgotten.

        Empty while none must.
        """
        now = self._clock.monotonic()
        with self._lock:
            self._known = {topic: known for topic, known in self._known.items() if topic in topics}
            self._asking.clear()  # who asks now keeps the lock that he holds
            known = {topic: self._known.get(topic) for topic in topics}
        worn = {topic: (now - each[0]) / self._age(each[1]) if each else 1.0 for topic, each in known.items()}
        if all(share < 1.0 for share in worn.values()):
            return []
        return [topic for topic, share in worn.items() if share >= 0.5]

    def put(self, topic: str, value: V, asked: float) -> bool:
        """Whether it was another one before. ``asked``: when; what was asked for earlier replaces nothing."""
        with self._lock:
            before = self._known.get(topic)
            if before is not None and before[0] > asked:
                return False
            self._known[topic] = (asked, value)
        return before is not None and before[1] != value

    def get(self, topic: str, after: float | None = None) -> V:
        """However many threads want it at once, one asks.

        ``after``: only what was asked for later than that will do, instead of what is not too old.
        """
        with self._lock:
            asking = self._asking[topic]
        with asking:
            now = self._clock.monotonic()
            with self._lock:
                known = self._known.get(topic)
            if known is not None and known[0] > (now - self._age(known[1]) if after is None else after):
                return known[1]
            value = self._ask(topic)
            self.put(topic, value, now)
            return value


@dataclass(frozen=True, slots=True)
class _Listing:
    asked_at: TimestampMs
    groups: TopicGroups


class Observer:
    """Thread-safe. ``overrides`` are the settings' own, per topic: they replace Kafka's where they are shorter."""

    def __init__(
        self,
        seat: Seat,
        groups: GroupPolicy,
        overrides: Callable[[str, TopicConfig], TopicConfig],
        topic_problems: Callable[[], list[str]] = list,
        waits: Callable[[TopicIdPartition, bool], None] = lambda partition, waits: None,
        archive_problem: ArchiveProblem = no_archive_problem,
        prefix: Callable[[], PrefixProof] = always_proven,
    ) -> None:
        """``waits``: told at each look whether the last stable offset keeps a rolled segment from being copied."""
        self._archive_problem, self._respect, self._prefix = archive_problem, groups.respect, prefix
        broker, clock = seat.broker, seat.clock
        self._broker, self._broker_id, self._log = broker, seat.broker_id, seat.log
        self._overrides, self._clock, self._waits = overrides, clock, waits
        self._asked_ahead: dict[TopicIdPartition, tuple[float, LocalBounds | TierstateError]] = {}
        self._looked_ahead = float("-inf")
        self._configs = _Aged(clock, lambda _: CONFIG_AGE_S, lambda topic: overrides(topic, broker.config(topic)))
        self._groups = _Aged(clock, self._groups_age, self._list_groups)
        self._holds = GroupHolds(groups, clock)
        self._drift = _Aged(clock, lambda _: DRIFT_AGE_S, lambda _: _first_problem(topic_problems))

    def __call__(self, partition: TopicIdPartition, name: str) -> Observed:
        """Raises Fenced when the partition left the disk, BrokerUnavailable kinds."""
        seen = self.local_log(partition, name)
        seen = replace(seen, drift=self._drift.get("") or self._archive_problem(partition), prefix=self._prefix())
        if not self._respect or refusal(seen.config) is not None:
            return seen
        return replace(seen, groups=self._seen(partition, name, seen.bounds, self._groups.get(name)))

    def local_log(self, partition: TopicIdPartition, name: str) -> Observed:
        """Return what the broker and its disks tell of the partition. No store is asked, and no group.

        Raises as a whole look does.
        """
        bounds = self._bounds(partition, name)
        local = self._log.snapshot(partition, name)
        self._waits(partition, bool(local.segments) and local.segments[-1].base_offset > bounds.last_stable_offset)
        return Observed(local.segments, local.lineage, bounds, self._configs.get(name), NO_GROUPS)

    def groups_after(
        self, partition: TopicIdPartition, name: str, bounds: LocalBounds, moment: float
    ) -> Mapping[str, Offset] | None:
        """What groups hold, by a listing that was asked for later than ``moment`` of the agent's monotonic clock.

        The next look goes by it too. Who comes while another listing is under way shares the one after that.
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
        """Each answer that was asked for ahead is good for one look."""
        at, said = self._asked_ahead.pop(partition, (0.0, None))
        if said is None or self._clock.monotonic() - at >= AHEAD_AGE_S:
            return self._broker.bounds(name, partition.partition, broker=self._broker_id)
        if isinstance(said, TierstateError):
            raise said
        return said

    def ahead(self, due: Mapping[TopicIdPartition, str], topics: Collection[str]) -> set[str]:
        """Ask together what looks would ask one by one: bounds for those that are ``due``, and how topics are set.

        ``topics``: all that are led. Answers those whose configuration is another one now. Raises nothing: what
        cannot be learnt here, the looks ask again, and say why it cannot.
        """
        now = self._clock.monotonic()
        if len(due) > 1:
            said = self._all_bounds(due)
            # answers of earlier turns are kept: who waits for a thread has not been looked at yet
            for each in [each for each, (at, _) in self._asked_ahead.copy().items() if now - at >= AHEAD_AGE_S]:
                self._asked_ahead.pop(each, None)
            self._asked_ahead.update((each, (now, found)) for each, found in said.items())
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
        places = {each: (name, each.partition) for each, name in due.items()}
        try:
            said = self._broker.bounds_of(places.values(), broker=self._broker_id)
        except TierstateError as error:
            return dict.fromkeys(due, error)
        return {each: said[place] for each, place in places.items()}

    def _all_configs(self, topics: Collection[str]) -> set[str]:
        old, now = self._configs.old(topics), self._clock.monotonic()
        try:
            said = self._broker.configs(old, broker=self._broker_id) if old else {}
        except TierstateError:
            return set()
        known = {topic: config for topic, config in said.items() if isinstance(config, TopicConfig)}
        put, overrides = self._configs.put, self._overrides
        return {topic for topic, config in known.items() if put(topic, overrides(topic, config), now)}

    def _all_groups(self, topics: Collection[str]) -> None:
        configs = {topic: self._configs.last(topic) for topic in topics}
        tiered = [topic for topic, config in configs.items() if config is not None and refusal(config) is None]
        old, now, at = self._groups.old(tiered), self._clock.monotonic(), self._clock.now_ms()
        try:
            said = self._broker.groups_of(old) if old else {}
        except (Unavailable, AccessDenied) as error:
            said = dict.fromkeys(old, _no_groups(error))
        for topic, groups in said.items():
            self._groups.put(topic, _Listing(at, groups), now)

    def _groups_age(self, listing: _Listing) -> float:
        return PROBLEM_AGE_S if self._holds.unknown(listing.groups) else GROUPS_AGE_S

    def _list_groups(self, topic: str) -> _Listing:
        """When Kafka did not answer, any group may be missing: an incomplete listing means no trim."""
        at = self._clock.now_ms()
        try:
            return _Listing(at, self._broker.groups(topic))
        except (Unavailable, AccessDenied) as error:
            return _Listing(at, _no_groups(error))


def _no_groups(error: TierstateError) -> TopicGroups:
    return TopicGroups((), (GroupProblem(None, str(error)),))


def _first_problem(topic_problems: Callable[[], list[str]]) -> str | None:
    """None when the tier-state topic is as it must be; not being able to look is a problem too."""
    try:
        return next(iter(topic_problems()), None)
    except (Unavailable, AccessDenied, UnknownTopic) as error:
        return str(error)
