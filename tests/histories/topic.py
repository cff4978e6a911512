"""The tier-state topic of a generated history: three replicas with randomly running cleaners, and a bad network.

Compaction is legal by construction: a replica's cleaner removes a record only when a later one of its key is older than
``min.compaction.lag.ms``, and a tombstone only ``delete.retention.ms`` after the pass that removed the last value
before it (KIP-534). Replicas are cleaned independently, and every poll may read another replica. Illegal events happen
too: the topic loses its head, its tail, or all records.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from random import Random

from confluent_kafka import OFFSET_BEGINNING

from tests.twins.manual_clock import ManualClock
from tierstate.broker import tier_reader
from tierstate.broker.tier_reader import TierBatch, TierReader
from tierstate.broker.tier_topic import AppendTime
from tierstate.state.errors import BrokerUnavailable, InvalidRequest, PositionLost, UnknownOutcome
from tierstate.state.offsets import Position, TimestampMs
from tierstate.state.view import Anchor, Entry

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
MIN_COMPACTION_LAG = DAY
MAX_COMPACTION_LAG = 7 * DAY
DELETE_RETENTION = 30 * DAY
REPLICAS = 3
BY_NO_TERM = ("order", "lease", "hold", "lineage", "settled", "gap", "missing", "omen")
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAg"
NAME = "_tier-state"


@dataclass
class Replica:
    """One replica: the positions that its cleaner removed, and when the tombstones that it saw may be removed."""

    gone: set[int] = field(default_factory=set)
    horizons: dict[int, int] = field(default_factory=dict)
    cleaned_at: int = 0


@dataclass
class InFlight:
    """An append whose answer was lost; it may still land."""

    who: int
    key: str
    value: bytes | None


class HistoryTopic:
    """All records that landed, in order, and for each replica the ones that its cleaner removed."""

    def __init__(self, rnd: Random, clock: ManualClock) -> None:
        self.rnd, self.clock = rnd, clock
        self.wrong_by_ms: Callable[[], int] = lambda: 0
        """Returns how far (ms) the clock of the broker that leads the topic is ahead."""
        self.log: list[Entry] = []
        self.times: list[int] = []
        self.this_term: list[tuple[str, bytes | None]] = []
        self.replicas = [Replica(cleaned_at=clock.now_ms()) for _ in range(REPLICAS)]
        self.flight: list[InFlight] = []
        self.landed: Callable[[Entry], None] = lambda entry: None
        self.writing: Callable[[int, str], None] = lambda who, key: None
        """Called for each append of a process before it is sent."""
        self.start = Position(0)
        self.compacts = True
        self.max_compaction_lag: int | None = MAX_COMPACTION_LAG
        self.removed = 0
        self.landing_late = False
        self.drift: str | None = None
        """An unsafe setting of the topic; None if its settings are safe."""
        self.not_ours = ""
        """Key prefix of a partition that no agent leads. Its facts never land twice."""

    def lose(self) -> None:
        """Delete the topic with all records and all appends in flight, and create it again."""
        self.replicas = [Replica(cleaned_at=self.clock.now_ms()) for _ in range(REPLICAS)]
        self.start = Position(0)
        for each in (self.log, self.times, self.this_term, self.flight):
            each.clear()

    def cut(self, end: int) -> None:
        """Cut all replicas at ``end``, and drop all appends in flight."""
        del self.log[end:], self.times[end:]
        for each in self.replicas:
            each.gone = {at for at in each.gone if at < end}
            each.horizons = {at: when for at, when in each.horizons.items() if at < end}
        self.this_term.clear()
        self.flight.clear()

    def land(self, key: str, value: bytes | None) -> Position:
        entry = Entry(key, Position(len(self.log)), value)
        self.log.append(entry)
        self.times.append(self.clock.now_ms())
        if self.not_ours and key.startswith(self.not_ours):
            pass
        elif "/leader/" in key and value is not None:
            self.this_term.clear()
        elif not any(f"/{kind}/" in key for kind in BY_NO_TERM):
            self.this_term.append((key, value))
        self.landed(entry)
        return entry.position

    def land_late(self) -> None:
        """Now and then, one append in flight lands or is lost for good."""
        if self.flight and self.rnd.random() < 0.5:
            late = self.flight.pop(self.rnd.randrange(len(self.flight)))
            if self.rnd.random() < 0.7:
                self.land_unasked(late.key, late.value)

    def land_again(self) -> None:
        """Let a record of this term land a second time.

        An idempotent producer cannot do that after a later term began (`docs/decisions/0011`).
        """
        finished = [each for each in self.this_term if each[0].endswith("copy-finished") and each[1] is not None]
        among = finished if finished and self.rnd.random() < 0.5 else self.this_term
        if among:
            self.land_unasked(*self.rnd.choice(among))

    def land_unasked(self, key: str, value: bytes | None) -> None:
        self.landing_late = True
        try:
            self.land(key, value)
        finally:
            self.landing_late = False

    def clean(self, replica: Replica, *, whole: bool = False) -> None:
        """Run a cleaner over the records that are old enough, or over some prefix of them unless ``whole``."""
        now = self.clock.now_ms()
        end = bisect_left(self.times, now - MIN_COMPACTION_LAG + 1)
        if not whole and end and self.rnd.random() < 0.5:
            end = self.rnd.randrange(end + 1)
        latest: dict[str, int] = {}
        for entry in self.log[:end]:
            latest[entry.key] = entry.position
        for entry in self.log[:end]:
            at = entry.position
            if at in replica.gone:
                continue
            if latest[entry.key] != at:
                replica.gone.add(at)
                self.removed += 1
            elif entry.value is None:
                if replica.horizons.setdefault(at, now + DELETE_RETENTION) <= now:
                    replica.gone.add(at)
                    self.removed += 1
        if whole:
            replica.cleaned_at = now

    def time_passed(self) -> None:
        """Run cleaners at random, but at the latest ``max.compaction.lag.ms`` after a replica's last whole pass."""
        if not self.compacts:
            return
        limit, now = self.max_compaction_lag, self.clock.now_ms()
        for replica in self.replicas:
            if limit is not None and now - replica.cleaned_at > limit:
                self.clean(replica, whole=True)
            elif self.rnd.random() < 0.2:
                self.clean(replica)

    def live_at(self, end: int) -> dict[str, tuple[int, bytes]]:
        """Return key to (position, value) of everything that a follower at ``end`` must hold."""
        live: dict[str, tuple[int, bytes]] = {}
        for entry in self.log[:end]:
            if entry.value is None:
                live.pop(entry.key, None)
            else:
                live[entry.key] = (entry.position, entry.value)
        return live


class ProcessTopic:
    """The `TierTopic` of one process, over an unreliable network (reliable if ``kind``)."""

    def __init__(self, topic: HistoryTopic, who: int, *, kind: bool = False) -> None:
        self._topic, self._who, self._kind = topic, who, kind
        self.topic_id_now = TOPIC_ID
        self.append_times: dict[int, AppendTime] = {}

    @property
    def topic_id(self) -> str:
        return TOPIC_ID

    @property
    def mapped_partitions(self) -> int:
        return 1

    def append(self, tier_partition: int, key: str, value: bytes | None) -> Position:
        topic, chance = self._topic, self._topic.rnd.random()
        topic.writing(self._who, key)
        if chance < 0.93 or self._kind:
            position = topic.land(key, value)
            now = topic.clock.monotonic()
            self.append_times[tier_partition] = AppendTime(
                TimestampMs(topic.times[position] + topic.wrong_by_ms()), now, now
            )
            return position
        if chance < 0.94:
            raise InvalidRequest("refused before sending", key=key)
        if chance < 0.96:
            topic.land(key, value)
        elif chance < 0.985:
            topic.flight.append(InFlight(self._who, key, value))
        raise UnknownOutcome("append may or may not have landed", key=key)

    def end(self, tier_partition: int) -> Position:
        if not self._kind and self._topic.rnd.random() < 0.01:
            raise BrokerUnavailable("end of the tier-state topic is unknown")
        return Position(len(self._topic.log))

    def ends(self, tier_partitions: Collection[int]) -> dict[int, Position]:
        return {}

    def starts(self, tier_partitions: Collection[int]) -> dict[int, Position]:
        return {0: self._topic.start}

    def position_at(self, tier_partition: int, timestamp_ms: int) -> Position:
        return Position(bisect_left(self._topic.times, timestamp_ms, lo=self._topic.start))

    def anchor_at(self, tier_partition: int, position: Position) -> Anchor | None:
        topic = self._topic
        gone = topic.replicas[topic.rnd.randrange(REPLICAS)].gone if position < len(topic.log) else {int(position)}
        if position in gone:
            return None
        entry = topic.log[position]
        return Anchor.of(position, TimestampMs(topic.times[position]), entry.key, entry.value)

    def reader(self, positions: Mapping[int, Position], epochs: Mapping[int, int] | None = None) -> TierReader:
        tier_reader.check_head(NAME, positions, self.starts(positions))
        return _Reader(self._topic, tier_reader.assigned(positions[0]))

    def problems(self) -> list[str]:
        drift = [self._topic.drift] if self._topic.drift else []
        return tier_reader.lost_heads(NAME, self.starts([0])) + drift

    def current_topic_id(self) -> str:
        return self.topic_id_now

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class _Reader:
    """A reader: each poll returns any number of records, from any replica."""

    def __init__(self, topic: HistoryTopic, assigned: int) -> None:
        self._topic = topic
        self._position = topic.start if assigned == OFFSET_BEGINNING else Position(assigned)

    def poll(self, timeout: float) -> list[TierBatch]:
        topic, start = self._topic, self._position
        if start < topic.start:
            raise PositionLost("position is below the start", position=start, log_start=topic.start)
        if start >= len(topic.log):
            return []
        stop = len(topic.log) if topic.rnd.random() < 0.5 else topic.rnd.randint(start + 1, len(topic.log))
        gone = topic.replicas[topic.rnd.randrange(REPLICAS)].gone
        entries = tuple(entry for entry in topic.log[start:stop] if entry.position not in gone)
        self._position = Position(stop)
        times = tuple(TimestampMs(topic.times[entry.position]) for entry in entries)
        return [TierBatch(0, entries, self._position, times)]

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
