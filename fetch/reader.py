"""Both tiers of any tiered topic as one log. The gateway, Spark's driver and the command line use this reader.

Memory of a scan: the chunk cache and a number of pieces, each of ``piece_bytes`` plus the largest batch. They are
`PIECES_AHEAD` waiting pieces, one that is being loaded, and one that the caller holds. Memory of a fetch: ``max_bytes``
plus one batch. Data that is loaded ahead is in the cache (`prefetch.py`).
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from ..broker.control import TopicDirectory
from ..runtime.clock import Clock
from ..state.epochs import LeaderEpoch
from ..state.errors import BrokerUnavailable, OffsetOutOfRange, UnknownTopic
from ..state.ids import TopicId, TopicIdPartition
from ..state.lineage import EpochEnd
from ..state.offsets import Extent, Offset, TimestampMs
from ..state.partition_view import PartitionView
from ..state.routing import Isolation, Tier, unconfirmed
from ..state.view import TierView
from .by_time import first_remote, latest_remote, offset_for_time
from .gone import NoBroker, gone_id
from .local import LocalTier
from .logical import Ask, LogicalPartition
from .piece import PIECE_BYTES, PIECES_AHEAD, Batches, Names, Search
from .piece import Fetched as Fetched
from .piece import LogicalBounds as LogicalBounds
from .piece import LogicalTopic as LogicalTopic
from .piece import records as records
from .read_ahead import read_ahead
from .recent_views import RecentViews
from .remote import RemoteTier
from .remote_parts import proven

FETCH_BYTES = 1024 * 1024
TOPIC_AGE_S = 1.0
"""Seconds for which a topic's identity is trusted. A fetch by topic id detects a change in any case."""


class LogReader:
    """A reader of both tiers. Thread-safe. `close` stops the background work of `remote`, and closes nothing else."""

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
        """Stop loading ahead, and release the chunk cache's disk for other processes. Idempotent."""
        self.remote.close()

    def topics(self) -> list[str]:
        """Return the names of the broker's topics that have a partition in the view."""
        topic_ids = {partition.topic_id for partition in self._view.partitions()}
        return [topic.name for topic in self._control.topics() if topic.topic_id in topic_ids]

    @property
    def cluster_id(self) -> str:
        """Return the id of the cluster that wrote the log. Raises BrokerUnavailable."""
        return self._control.cluster().cluster_id

    def topic_names(self) -> dict[TopicId, str]:
        """Return the names of the broker's topics by their ids. Raises BrokerUnavailable."""
        return {topic.topic_id: topic.name for topic in self._control.topics()}

    def is_tiered(self, topic: str) -> bool:
        """Return whether a recent view (`recent_views.py`) has any partition of the topic. Raises ViewBehind while the
        view is still being read. Also raises UnknownTopic, AccessDenied, BrokerUnavailable.
        """
        described = self.topic(topic)
        places = [TopicIdPartition(described.topic_id, number) for number in range(described.partitions)]
        for number in {self._view.tier_partition(place) for place in places}:
            self._recent.require(number)
        return not set(places).isdisjoint(self._view.partitions())

    def topic(self, name: str, *, fresh: bool = False) -> LogicalTopic:
        """Return a topic. ``fresh``: ask the broker now. Raises UnknownTopic, AccessDenied, BrokerUnavailable."""
        now = self._clock.monotonic()
        with self._lock:
            cached = self._topics.get(name)
        if cached is not None and not fresh and now - cached[0] < TOPIC_AGE_S:
            return cached[1]
        topic = self._looked_up(name)
        with self._lock:
            self._topics[name] = (now, topic)
        return topic

    def _looked_up(self, name: str) -> LogicalTopic:
        try:
            described = self._control.topic(name)
        except UnknownTopic:
            topic_id = gone_id(self._control, name)
            if topic_id is None:  # a misspelt name must not wait for the view, which may have to be read first
                raise
            numbers = [each.partition for each in self._view.partitions() if each.topic_id == topic_id]
            if not numbers:
                raise
            return LogicalTopic(name, topic_id, max(numbers) + 1, gone=True)
        return LogicalTopic(name, described.topic_id, len(described.partitions))

    def partition(self, topic: str, partition: int) -> LogicalPartition:
        """Return a partition of the topic with this name, or of a deleted topic by its id. Raises UnknownTopic."""
        described = self.topic(topic)
        place = _place_of(described, topic, partition)
        with self._lock:
            log = self._partitions.get((topic, place))
            if log is None:
                local = NoBroker(self._view) if described.gone else self._local
                log = LogicalPartition(topic, place, self._view, local, self.remote, self._clock, self._recent)
                self._partitions[topic, place] = log
        return log

    def view(self, topic: str, partition: int) -> PartitionView:
        """Return the partition's view from the tier-state topic. Raises UnknownTopic."""
        return self.partition(topic, partition).view()

    def bounds(self, topic: str, partition: int, max_age: float = 0.0) -> LogicalBounds:
        """Return the bounds of both tiers. Those of the broker are at most ``max_age`` seconds old.

        Raises UnknownTopic, BrokerUnavailable, ViewBehind.
        """
        return self.partition(topic, partition).bounds(max_age)

    def partitions(self, topic: str) -> list[int]:
        """Return the partition numbers, ascending."""
        return list(range(self.topic(topic).partitions))

    def extent(
        self, topic: str, partition: int, isolation: Isolation = Isolation.READ_COMMITTED, tier: Tier = Tier.AUTO
    ) -> Extent:
        """Return the offsets that can be read now from this tier, or from both.

        Raises LineageUnconfirmed if only the view has the answer, and the view may describe a lost branch.
        """
        log = self.partition(topic, partition)
        return log.bounds().extent(topic, partition, isolation, tier, log.copied_end)

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = FETCH_BYTES,
        isolation: Isolation = Isolation.READ_COMMITTED,
        tier: Tier = Tier.AUTO,
    ) -> Fetched:
        """Return one piece from ``offset``. It is empty at the end of the log.

        Skips no record. Raises OffsetOutOfRange, LogGap, SegmentExpired, CorruptData, Fenced, Unavailable.
        """
        return self.partition(topic, partition).fetch(offset, Ask(max_bytes, isolation, tier))

    def fetch_without_brokers(
        self, topic: str, partition: int, offset: int, *, max_bytes: int = FETCH_BYTES, isolation: Isolation
    ) -> Fetched:
        """Return one piece of the remote tier, by the current view, while brokers do not answer.

        Raises ViewBehind if the view is not ready (`READY_AGE_S`). The view cannot prove that an offset is missing, so
        an offset that it lacks raises ViewBehind or BrokerUnavailable. Raises UnknownTopic for an unknown name.
        """
        place = _place_of(self.topic_without_brokers(topic), topic, partition)
        local = NoBroker(self._view)
        log = LogicalPartition(topic, place, self._view, local, self.remote, self._clock, self._recent)
        piece = log.fetch(offset, Ask(max_bytes, isolation, Tier.REMOTE))
        if piece.next_offset == offset and not piece.data:
            raise BrokerUnavailable("the view ends here, and no broker says whether the log does", offset=offset)
        return replace(piece, view_age_s=self._view.age_s(self._view.tier_partition(place)))

    def topic_without_brokers(self, name: str) -> LogicalTopic:
        """Return the topic as a broker last described it. Else return the view's topic, if only one topic id has this
        name. Raises UnknownTopic."""
        with self._lock:
            cached = self._topics.get(name)
        topic = self._topics_of_view().get(name) if cached is None else cached[1]
        if topic is None:
            raise UnknownTopic("no such topic is known while no broker answers", topic=name)
        return topic

    def tiered_without_brokers(self, topic: str) -> bool:
        """Return whether the view has a topic of this name."""
        with suppress(UnknownTopic):
            self.topic_without_brokers(topic)
            return True
        return False

    def topics_without_brokers(self) -> list[str]:
        """Return the names that belong to exactly one topic id in the view."""
        return sorted(self._topics_of_view())

    def _topics_of_view(self) -> dict[str, LogicalTopic]:
        last_of: dict[str, dict[TopicId, int]] = defaultdict(dict)
        for partition in self._view.partitions():
            if name := self._view.partition(partition).topic:
                last_of[name][partition.topic_id] = max(partition.partition, last_of[name].get(partition.topic_id, 0))
        unique = [(name, *each) for name, ids in last_of.items() if len(ids) == 1 for each in ids.items()]
        topics = {name: LogicalTopic(name, topic_id, last + 1) for name, topic_id, last in unique}
        with self._lock:
            for name, topic in topics.items():
                self._topics.setdefault(name, (float("-inf"), topic))  # age -inf: `topic` still asks the broker
        return topics

    def view_without_brokers(self, topic: str, partition: int) -> tuple[PartitionView, float]:
        """Return the partition as last read from the tier-state topic, and the age of the view in seconds.

        Raises UnknownTopic, and ViewBehind if the view is not ready (`READY_AGE_S`).
        """
        place = _place_of(self.topic_without_brokers(topic), topic, partition)
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
        """Yield pieces with exactly the records of ``[start, end)``, read ahead. Segments that are completely in the
        range are checked by `proven`. Raises OffsetOutOfRange if the log ends below ``end``: no result is cut short.
        """
        log = self.partition(topic, partition)
        if end > log.local_bounds().end(isolation):
            raise beyond(log, end, isolation)
        if start >= end:
            return iter(())
        pieces = _pieces(log, Offset(start), Ask(piece_bytes, isolation, tier, Offset(end)))
        return read_ahead(proven(pieces), PIECES_AHEAD)

    def records(
        self, topic: str, partition: int, extent: Extent, isolation: Isolation, tier: Tier, *, columns: Names = None
    ) -> Batches:
        """Yield exactly the records of ``extent``, as `source.RecordSource.records` does."""
        for piece in self.scan(topic, partition, *extent, isolation=isolation, tier=tier):
            for batch in records(piece, topic, partition, columns=columns, milliseconds=True):
                yield batch, piece.tier

    def search_records(
        self, topic: str, partition: int, extent: Extent, isolation: Isolation, tier: Tier, search: Search
    ) -> Batches:
        """Yield the records that match ``search``, as `source.SearchedSource.search_records` does."""
        from ..log.record_block import RecordFilter

        filter_ = RecordFilter(search.key, search.contains)
        for piece in self.scan(topic, partition, *extent, isolation=isolation, tier=tier):
            options = {"record_filter": filter_, "looked": search.count, "milliseconds": True}
            for batch in records(piece, topic, partition, **options):
                yield batch, piece.tier
            search.reach(min(piece.next_offset, extent.end))

    def first_at(self, topic: str, partition: int, timestamp: TimestampMs, *, markers: bool = False) -> Offset | None:
        """Return the offset of the first record at or after a time, or None. ``markers``: they count as records."""
        first = offset_for_time(self.partition(topic, partition), timestamp, markers=markers)
        return first[0] if first else None

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> tuple[Offset, TimestampMs] | None:
        """Return the offset and time of the first record at or after a time. Returns None if there is none."""
        return offset_for_time(self.partition(topic, partition), TimestampMs(timestamp_ms))

    def first_remote(self, topic: str, partition: int, timestamp_ms: int) -> tuple[Offset, TimestampMs] | None:
        """Return the first record or marker below the local start at or after a time, by the broker's rule."""
        log = self.partition(topic, partition)
        return first_remote(log, TimestampMs(timestamp_ms), log.local_bounds(), markers=True)

    def latest_remote(self, topic: str, partition: int, above_ms: int) -> tuple[Offset, TimestampMs] | None:
        """Return the record or marker below the local start with the latest time, unless it is below ``above_ms``."""
        return latest_remote(self.partition(topic, partition), TimestampMs(above_ms))

    def epoch_at(self, topic: str, partition: int, offset: int) -> LeaderEpoch | None:
        """Return the leader epoch that owns an offset in the lineage of both tiers. None: below the known lineage."""
        return self.partition(topic, partition).view().lineage.epoch_at(offset)

    def remote_epoch_end(self, topic: str, partition: int, epoch: LeaderEpoch) -> EpochEnd | None:
        """Return the newest epoch up to ``epoch`` and its end, by Kafka's rule (`LeaderEpochFileCache.endOffsetFor`),
        if the end lies at or below the local start. None: the broker knows the epoch itself.

        A trim removes epochs from the broker's checkpoint. For a removed epoch, the broker answers with the start of
        its own log. A consumer whose log was truncated below that offset would not notice the truncation. Raises
        ViewBehind, BrokerUnavailable, LineageUnconfirmed.
        """
        log = self.partition(topic, partition)
        bounds = log.local_bounds()  # read after the broker's own answer, so a trim in between is noticed
        view = log.recent_view()
        entries = view.lineage.entries
        following = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        if following == len(entries) or entries[following].start_offset > bounds.local_start:
            return None
        end = entries[following].start_offset
        sure = log.sure_end(view, bounds)
        if end > sure:
            raise unconfirmed(view, bounds, sure, offset=end)
        return EpochEnd(entries[following - 1].epoch if following else epoch, end)


def _place_of(described: LogicalTopic, topic: str, partition: int) -> TopicIdPartition:
    if not 0 <= partition < described.partitions:
        raise UnknownTopic("no such partition", topic=topic, partition=partition, partitions=described.partitions)
    return TopicIdPartition(described.topic_id, partition)


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
    """Return the error of a range that ends past the log's end. Raises LineageUnconfirmed if the start is unknown."""
    bounds, partition = log.bounds(), log.partition.partition
    return OffsetOutOfRange(
        "the range ends past the end of the log",
        valid_start=bounds.start(log.topic, partition),
        valid_end=bounds.end(isolation),
        topic=log.topic,
        partition=partition,
        end=end,
    )
