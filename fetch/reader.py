"""The log of any tiered topic as one: what the gateway, Spark's driver and the command line read through.

Memory of a scan: (`PIECES_AHEAD` waiting + one being made + one in the caller's hands) x ``piece_bytes``, each plus the
largest batch, beside the chunk cache. Memory of a fetch: ``max_bytes`` plus one batch. What is loaded ahead lies in the
cache (`prefetch.py`).
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from ..broker.control import TopicDirectory
from ..runtime.clock import Clock
from ..state.epochs import LeaderEpoch
from ..state.errors import BrokerUnavailable, OffsetOutOfRange, UnknownTopic
from ..state.ids import TopicId, TopicIdPartition
from ..state.lineage import EpochEnd
from ..state.offsets import Extent, Offset, TimestampMs
from ..state.partition_view import PartitionView
from ..state.routing import Isolation, Tier
from ..state.view import TierView
from .by_time import first_remote, latest_remote, offset_for_time
from .gone import NoBroker, gone_id
from .local import LocalTier
from .logical import Ask, LogicalPartition
from .older_epochs import remote_epoch_end
from .piece import PIECE_BYTES, PIECES_AHEAD, AtHand
from .piece import Fetched as Fetched
from .piece import LogicalBounds as LogicalBounds
from .piece import LogicalTopic as LogicalTopic
from .piece import records as records
from .proven_log import proven
from .read_ahead import read_ahead
from .recent_views import RecentViews
from .remote import RemoteTier

FETCH_BYTES = 1024 * 1024
TOPIC_AGE_S = 1.0
"""How long a topic's identity is believed; a fetch by topic id finds out in any case."""


class LogReader:
    """Thread-safe. `close` ends what `remote` does by itself; of the rest it closes nothing."""

    def __init__(
        self, view: TierView, control: TopicDirectory, local: LocalTier, remote: RemoteTier, clock: Clock
    ) -> None:
        self._view, self._control, self._clock = view, control, clock
        self._local, self.remote = local, remote
        self._recent = RecentViews(view, clock)
        self._lock = threading.Lock()
        self._topics: dict[str, tuple[float, LogicalTopic]] = {}
        self._partitions: dict[tuple[str, TopicIdPartition], LogicalPartition] = {}

    def close(self) -> None:
        """Nothing is loaded ahead any more, and the chunk cache's disk is free for another process. Idempotent."""
        self.remote.close()

    def topics(self) -> list[str]:
        """Names of the topics that the broker has and the view knows a partition of."""
        known = {partition.topic_id for partition in self._view.partitions()}
        return [topic.name for topic in self._control.topics() if topic.topic_id in known]

    def is_tiered(self, topic: str) -> bool:
        """Whether the remote tier has anything of it, by a view that is seconds old: one that is still being read says
        nothing of what it lacks. Raises UnknownTopic, AccessDenied, BrokerUnavailable, ViewBehind.
        """
        described = self.topic(topic)
        places = [TopicIdPartition(described.topic_id, number) for number in range(described.partitions)]
        for number in {self._view.tier_partition(place) for place in places}:
            self._recent.require(number)
        return not set(places).isdisjoint(self._view.partitions())

    def topic(self, name: str, *, fresh: bool = False) -> LogicalTopic:
        """``fresh``: whoever has the name at this moment. Raises UnknownTopic, AccessDenied, BrokerUnavailable."""
        now = self._clock.monotonic()
        with self._lock:
            known = self._topics.get(name)
        if known is not None and not fresh and now - known[0] < TOPIC_AGE_S:
            return known[1]
        topic = self._looked_up(name)
        with self._lock:
            self._topics[name] = (now, topic)
        return topic

    def _looked_up(self, name: str) -> LogicalTopic:
        try:
            described = self._control.topic(name)
        except UnknownTopic:
            topic_id = gone_id(self._control, name)
            if topic_id is None:  # the view may have to be read first: not for a name that was misspelt
                raise
            numbers = [each.partition for each in self._view.partitions() if each.topic_id == topic_id]
            if not numbers:
                raise
            return LogicalTopic(name, topic_id, max(numbers) + 1, gone=True)
        return LogicalTopic(name, described.topic_id, len(described.partitions))

    def partition(self, topic: str, partition: int) -> LogicalPartition:
        """One partition of the topic that has this name now, or of one that is gone, by its id. Raises UnknownTopic."""
        described = self.topic(topic)
        if not 0 <= partition < described.partitions:
            raise UnknownTopic("no such partition", topic=topic, partition=partition, partitions=described.partitions)
        place = TopicIdPartition(described.topic_id, partition)
        with self._lock:
            log = self._partitions.get((topic, place))
            if log is None:
                local = NoBroker(self._view) if described.gone else self._local
                log = LogicalPartition(topic, place, self._view, local, self.remote, self._clock, self._recent)
                self._partitions[topic, place] = log
        return log

    def view(self, topic: str, partition: int) -> PartitionView:
        """What the tier-state topic says of it. Raises UnknownTopic."""
        return self.partition(topic, partition).view()

    def bounds(self, topic: str, partition: int) -> LogicalBounds:
        """As they are now. Raises UnknownTopic, BrokerUnavailable, ViewBehind."""
        return self.partition(topic, partition).bounds()

    def extent(
        self, topic: str, partition: int, *, isolation: Isolation = Isolation.READ_COMMITTED, tier: Tier = Tier.AUTO
    ) -> Extent:
        """What can be read now from this tier, or from both.

        Raises LineageUnconfirmed where only the view could say it, and may describe a lost branch.
        """
        log = self.partition(topic, partition)
        bounds = log.bounds()
        end = bounds.end(isolation)
        if tier is Tier.LOCAL:
            return Extent(max(bounds.log_start or bounds.local_start, bounds.local_start), end)
        start = bounds.start(topic, partition)
        if tier is Tier.REMOTE:
            return Extent(start, min(end, log.copied_end(start)))
        return Extent(start, end)

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = FETCH_BYTES,
        isolation: Isolation = Isolation.READ_COMMITTED,
        tier: Tier = Tier.AUTO,
        end: Offset | None = None,
        wait_s: float = 0.0,
    ) -> Fetched:
        """One piece; empty at the end of the log (after ``wait_s``) and at ``end``.

        Raises OffsetOutOfRange (seek), LogGap, SegmentExpired, CorruptData, Fenced, Unavailable. Skips nothing.
        """
        return self.partition(topic, partition).fetch(offset, Ask(max_bytes, isolation, tier, end, wait_s))

    def at_hand(
        self, topic: str, partition: int, offset: int, *, max_bytes: int, isolation: Isolation, tier: Tier
    ) -> AtHand | None:
        """As `fetch`, of the remote tier, where it asks nobody and waits for nothing. None: `fetch` may have it."""
        log = self._at_hand(topic, partition)
        found = None if log is None else log.at_hand(offset, Ask(max_bytes, isolation, tier))
        if log is None or found is None:
            return None
        topic_id, routed = log.partition.topic_id, found.holds
        return replace(found, holds=lambda: self._believed(topic) == topic_id and routed())

    def route_at_hand(
        self, topic: str, partition: int, offset: int, *, isolation: Isolation, tier: Tier
    ) -> Fetched | None:
        """As `at_hand`, without the data: where it would be read."""
        log = self._at_hand(topic, partition)
        return None if log is None else log.route_at_hand(offset, Ask(FETCH_BYTES, isolation, tier))

    def renew(self, topic: str, partition: int, offset: int, *, isolation: Isolation, tier: Tier) -> None:
        """What `at_hand` believes for a while is asked for again, before it is too old. Raises as `fetch`."""
        self.topic(topic, fresh=True)
        self.partition(topic, partition).renew(offset, isolation, tier)

    def _at_hand(self, topic: str, partition: int) -> LogicalPartition | None:
        topic_id = self._believed(topic)
        if topic_id is None:
            return None
        with self._lock:
            return self._partitions.get((topic, TopicIdPartition(topic_id, partition)))

    def _believed(self, topic: str) -> TopicId | None:
        """Whose name this is."""
        with self._lock:
            known = self._topics.get(topic)
        return None if known is None or self._clock.monotonic() - known[0] >= TOPIC_AGE_S else known[1].topic_id

    def fetch_without_brokers(
        self, topic: str, partition: int, offset: int, *, max_bytes: int = FETCH_BYTES, isolation: Isolation
    ) -> Fetched:
        """One piece of the remote tier, by the view as it is, while brokers do not answer.

        The view must be ready (`READY_AGE_S`), else ViewBehind. What it does not have is not concluded to be missing:
        that raises ViewBehind or BrokerUnavailable too. UnknownTopic: a name that is not known without brokers.
        """
        place = self._place_without_brokers(topic, partition)
        nobody = NoBroker(self._view)
        log = LogicalPartition(topic, place, self._view, nobody, self.remote, self._clock, self._recent)
        piece = log.fetch(offset, Ask(max_bytes, isolation, Tier.REMOTE, None, 0.0))
        if piece.next_offset == offset and not piece.data:
            raise BrokerUnavailable("the view ends here, and no broker says whether the log does", offset=offset)
        return replace(piece, view_age_s=self._view.age_s(self._view.tier_partition(place)))

    def _place_without_brokers(self, topic: str, partition: int) -> TopicIdPartition:
        described = self.topic_without_brokers(topic)
        if not 0 <= partition < described.partitions:
            raise UnknownTopic("no such partition", topic=topic, partition=partition, partitions=described.partitions)
        return TopicIdPartition(described.topic_id, partition)

    def topic_without_brokers(self, name: str) -> LogicalTopic:
        """As a broker last described it, or as the view has it: under one topic id only. Raises UnknownTopic."""
        with self._lock:
            known = self._topics.get(name)
        if known is not None:
            return known[1]
        found = [each for each in self._view.partitions() if self._view.partition(each).topic == name]
        ids = {each.topic_id for each in found}
        if len(ids) != 1:
            raise UnknownTopic("no such topic is known while no broker answers", topic=name)
        topic = LogicalTopic(name, ids.pop(), max(each.partition for each in found) + 1)
        with self._lock:
            self._topics.setdefault(name, (float("-inf"), topic))  # a broker is asked when one answers
        return topic

    def tiered_without_brokers(self, topic: str) -> bool:
        """Whether the view has a topic of this name."""
        try:
            self.topic_without_brokers(topic)
        except UnknownTopic:
            return False
        return True

    def topics_without_brokers(self) -> list[str]:
        """Names that the view has for one topic id each."""
        found: dict[str, dict[TopicId, int]] = defaultdict(dict)
        for each in self._view.partitions():
            if name := self._view.partition(each).topic:
                found[name][each.topic_id] = max(each.partition, found[name].get(each.topic_id, 0))
        named = {name: next(iter(ids.items())) for name, ids in found.items() if len(ids) == 1}
        with self._lock:
            for name, (topic_id, last) in named.items():
                self._topics.setdefault(name, (float("-inf"), LogicalTopic(name, topic_id, last + 1)))
        return sorted(named)

    def view_without_brokers(self, topic: str, partition: int) -> tuple[PartitionView, float]:
        """What the tier-state topic said of it when it was last read, and so many seconds ago.

        Raises UnknownTopic; ViewBehind for a view that is not ready (`READY_AGE_S`).
        """
        place = self._place_without_brokers(topic, partition)
        tier_partition = self._view.tier_partition(place)
        self._view.require_ready(tier_partition)
        return self._view.partition(place), self._view.age_s(tier_partition) or 0.0

    def scan(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        tier: Tier = Tier.AUTO,
        piece_bytes: int = PIECE_BYTES,
    ) -> Iterator[Fetched]:
        """Exactly the records of ``[start, end)``, read ahead; of a segment that is in it as a whole, `proven`.

        Raises OffsetOutOfRange when the log ends below ``end``: a short answer is never an answer.
        """
        log = self.partition(topic, partition)
        if end > log.local_bounds().end(isolation):
            raise beyond(log, end, isolation)
        if start >= end:
            return iter(())
        pieces = _pieces(log, Offset(start), Ask(piece_bytes, isolation, tier, Offset(end)))
        return read_ahead(proven(pieces), PIECES_AHEAD)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> tuple[Offset, TimestampMs] | None:
        """The first record at or after a time, and its time; None when there is none."""
        return offset_for_time(self.partition(topic, partition), self.remote, TimestampMs(timestamp_ms))

    def first_remote(self, topic: str, partition: int, timestamp_ms: int) -> tuple[Offset, TimestampMs] | None:
        """Of what the broker has no more, what it would have answered: the first record or marker since a time."""
        log = self.partition(topic, partition)
        return first_remote(log, self.remote, TimestampMs(timestamp_ms), log.local_bounds(), markers=True)

    def latest_remote(self, topic: str, partition: int, above_ms: int) -> tuple[Offset, TimestampMs] | None:
        """As `first_remote`, with the latest time, if that is ``above_ms`` or later."""
        return latest_remote(self.partition(topic, partition), self.remote, TimestampMs(above_ms))

    def epoch_at(self, topic: str, partition: int, offset: int) -> LeaderEpoch | None:
        """The leader epoch that owns an offset in the lineage of both tiers; None below what is known of it."""
        return self.partition(topic, partition).view().lineage.epoch_at(offset)

    def remote_epoch_end(self, topic: str, partition: int, epoch: LeaderEpoch) -> EpochEnd | None:
        """As `older_epochs.remote_epoch_end`."""
        return remote_epoch_end(self.partition(topic, partition), epoch)


def _pieces(log: LogicalPartition, start: Offset, ask: Ask) -> Iterator[Fetched]:
    assert ask.end is not None
    position = start
    while position < ask.end:
        piece = log.fetch(position, ask)
        if piece.next_offset <= position:
            # the log was truncated below the range after the scan began (an unclean election)
            raise beyond(log, ask.end, ask.isolation)
        if piece.data:
            yield piece
        position = piece.next_offset


def beyond(log: LogicalPartition, end: int, isolation: Isolation) -> OffsetOutOfRange:
    """The error of a range that ends past the log's end. Raises LineageUnconfirmed while its start is not known."""
    bounds, partition = log.bounds(), log.partition.partition
    return OffsetOutOfRange(
        "the range ends past the end of the log",
        valid_start=bounds.start(log.topic, partition),
        valid_end=bounds.end(isolation),
        topic=log.topic,
        partition=partition,
        end=end,
    )
