"""The two tiers of a topic that Kafka tiers itself. Brokers serve both, so they are only asked for what is local."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

from cachetools import LRUCache

from ..broker.answers import FetchSpec
from ..broker.open import Broker
from ..fetch.confirmation import Confirmation
from ..fetch.local import BrokerTier, LocalPiece
from ..fetch.open import Reading, open_cache
from ..fetch.reader import LogReader
from ..fetch.remote import KnownPartitions, RemoteTier, touching
from ..runtime.clock import Clock
from ..runtime.listener import Listener, ignore
from ..state.errors import BrokerUnavailable
from ..state.ids import RemoteSegmentId, TopicIdPartition
from ..state.offsets import Offset, OffsetRange
from ..state.partition_view import PartitionView
from ..state.routing import Isolation, LocalBounds, in_force, sure_end
from ..state.segment import AbortedRange, AbortedRanges, RemoteSegment
from ..state.view import TierView
from ..storage.object_store import ObjectReader
from ..storage.segment.manifest import IndexKind
from ..storage.segment.reader import SegmentReader
from .aborted import aborted_ranges, owned_end

BOUNDS_AGE_S = 1.0
SEGMENTS = 4096


class KafkasLocalTier(BrokerTier):
    """The local log of a broker that also serves the remote tier. ``bounds`` distinguish the two starts."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        super().__init__(broker)
        self._clock, self._lock = clock, threading.Lock()
        self._bounds: dict[TopicIdPartition, tuple[float, LocalBounds]] = {}

    def bounds(self, topic: str, partition: TopicIdPartition) -> LocalBounds:
        now, bounds = self._clock.monotonic(), self._reader.bounds(topic, partition.partition, both_tiers=True)
        with self._lock:
            self._bounds[partition] = now, bounds
        return bounds

    def known_bounds(self, topic: str, partition: TopicIdPartition) -> LocalBounds:
        """Return bounds that are at most `BOUNDS_AGE_S` old, and the newest that any caller of `bounds` got."""
        with self._lock:
            at, known = self._bounds.get(partition, (float("-inf"), None))
        if known is None or self._clock.monotonic() - at > BOUNDS_AGE_S:
            return self.bounds(topic, partition)
        return known

    def fetch(self, spec: FetchSpec) -> LocalPiece:
        """Fetch like `BrokerTier.fetch`. The answer names only the log start; the local start is one second old."""
        assert spec.topic_id is not None  # readers of both tiers fence by it
        partition = TopicIdPartition(spec.topic_id, spec.partition)
        known = self.known_bounds(spec.topic, partition)
        piece = super().fetch(spec)
        start = piece.bounds.local_start
        bounds = replace(piece.bounds, local_start=max(start, known.local_start), log_start=start)
        return replace(piece, bounds=bounds)

    def listed_aborted(self, topic: str, partition: TopicIdPartition, at: Offset) -> Iterable[tuple[int, Offset]]:
        """Return producer id and first offset of the aborted transactions in a read_committed answer at this offset."""
        spec = FetchSpec(topic, partition.partition, at, 1, Isolation.READ_COMMITTED, topic_id=partition.topic_id)
        answer = self._reader.fetch(spec)
        if not answer.batches:
            raise BrokerUnavailable(
                "the broker returned no batch below its last stable offset", topic=topic, partition=partition, offset=at
            )
        return answer.aborted


class KafkasRemoteTier(RemoteTier):
    """Segments that Kafka copied. Their aborted ranges are read when they are first needed, and kept."""

    served_by_brokers = True

    def __init__(
        self,
        view: TierView,
        local: KafkasLocalTier,
        store: ObjectReader,
        clock: Clock,
        reading: Reading,
        listener: Listener = ignore,
    ) -> None:
        cache, prefetch = open_cache(reading, listener), reading.cache.prefetch
        super().__init__(store, cache, clock, keys=reading.keys, prefetch=prefetch, listener=listener)
        self.known, self._view, self._local = NothingToCheck(store, reading.names), view, local
        self._aborted: LRUCache[tuple[RemoteSegmentId, Offset], AbortedRanges] = LRUCache(SEGMENTS)
        self._confirmations: dict[TopicIdPartition, Confirmation] = {}

    def with_aborted(self, segment: RemoteSegment) -> RemoteSegment:
        """Return the segment with its aborted ranges. Raises LogGap, CorruptData, ObjectNotFound, BrokerUnavailable."""
        partition = segment.partition
        bounds, view = self._local.known_bounds(segment.topic, partition), self._view.partition(partition)
        place = segment.segment_id, owned_end(segment, view.coverage, self._sure(view, bounds))
        with self._lock:
            known = self._aborted.get(place)
        if known is None:
            place, known = self._read_aborted(segment)
            with self._lock:
                self._aborted[place] = known
        return replace(segment, aborted=known)

    def _sure(self, view: PartitionView, bounds: LocalBounds) -> Offset:
        """Return `sure_end`, which the leader is asked for if a newer leader has copied nothing yet."""
        if in_force(view, bounds):
            return sure_end(view, bounds, None)
        with self._lock:
            confirmation = self._confirmations.get(view.partition)
            if confirmation is None:
                confirmation = Confirmation(view.topic or "", view.partition, self._local)
                self._confirmations[view.partition] = confirmation
        return sure_end(view, bounds, confirmation.of(view, bounds))

    def _read_aborted(self, segment: RemoteSegment) -> tuple[tuple[RemoteSegmentId, Offset], AbortedRanges]:
        partition = segment.partition
        bounds = self._local.bounds(segment.topic, partition)  # before the view: see `fetch/logical.py`
        self._view.require_fresh(self._view.tier_partition(partition), 0.0)
        view = self._view.partition(partition)
        sure = self._sure(view, bounds)
        ranges = aborted_ranges(
            segment,
            view.coverage,
            sure,
            bounds,
            lambda each: self.open(each).indexes(IndexKind.TRANSACTION) or b"",
            lambda at: self._local.listed_aborted(segment.topic, partition, at),
        )
        place = segment.segment_id, owned_end(segment, view.coverage, sure)
        return place, AbortedRanges.of(ranges, inline=len(ranges))

    def _aborted_in(
        self, segment: RemoteSegment, reader: SegmentReader, touched: OffsetRange
    ) -> tuple[AbortedRange, ...]:
        return touching(self.with_aborted(segment).aborted.entries, touched)


class NothingToCheck(KnownPartitions):
    """Kafka's brokers say themselves where the log begins: no partition can look new by mistake."""

    def check(self, view: PartitionView, topic: str, bounds: LocalBounds) -> None:
        """Do nothing."""


def open_kafkas_reader(
    view: TierView, broker: Broker, store: ObjectReader, clock: Clock, reading: Reading, listener: Listener = ignore
) -> LogReader:
    """Return a reader of both tiers. Raises as `fetch.open.open_remote`. Closing it does not close the arguments."""
    local = KafkasLocalTier(broker, clock)
    remote = KafkasRemoteTier(view, local, store, clock, reading, listener)
    return LogReader(view, broker.control, local, remote, clock)
