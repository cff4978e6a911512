"""The checks at the end of a story: of the remote tier, of the broker, of both as one log, and of a reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cached_property

import pytest

from tests.leader.real import eventually
from tests.proxy.serving import serving
from tests.scenarios.story_agents import StoryCluster
from tests.scenarios.story_kafka import StoryTopic
from tierstate.broker.open import Broker, open_broker
from tierstate.broker.plain_reads import PlainConsumer
from tierstate.broker.tier_topic import KafkaTierTopic
from tierstate.broker.tier_topic_setup import open_tier_topic
from tierstate.fetch.open import open_reader
from tierstate.fetch.reader import LogReader
from tierstate.fetch.source import ConsumerSource, RecordSource
from tierstate.follower.follower import Follower
from tierstate.follower.open import open_view
from tierstate.log.record_digest import RecordDigest
from tierstate.runtime.clock import SystemClock
from tierstate.state.errors import OffsetOutOfRange
from tierstate.state.ids import TopicIdPartition
from tierstate.state.offsets import Extent, Offset, OffsetRange
from tierstate.state.partition_view import PartitionView
from tierstate.state.routing import Isolation, LocalBounds, Tier

Saw = Callable[[str, int], None]


@dataclass
class Eyes:
    """A reader with a view of its own, independent of the agents."""

    cluster: StoryCluster
    broker: Broker
    tiers: KafkaTierTopic
    follower: Follower
    reader: LogReader
    stack: ExitStack

    @classmethod
    @contextmanager
    def opened(cls, cluster: StoryCluster) -> Iterator[Eyes]:
        clock = cluster.clock
        with ExitStack() as opened:
            broker = opened.enter_context(open_broker(cluster.sandbox.client_config))
            tiers = opened.enter_context(closing(open_tier_topic(cluster.sandbox.client_config, cluster.spec)))
            follower = opened.enter_context(closing(open_view(tiers, cluster.sandbox.cluster_id, clock)))
            reader = opened.enter_context(closing(open_reader(follower, broker, cluster.store, clock)))
            yield cls(cluster, broker, tiers, follower, reader, opened)

    @cached_property
    def proxied(self) -> dict[str, str]:
        """Return the properties with which librdkafka reads both tiers."""
        config = self.cluster.sandbox.client_config
        proxy = self.stack.enter_context(serving(self.reader, self.broker.control.cluster(), config))
        return config | {"bootstrap.servers": str(proxy.address)}

    def place(self, topic: StoryTopic, partition: int) -> TopicIdPartition:
        return TopicIdPartition(self.broker.control.topic(topic.name).topic_id, partition)

    def view(self, topic: StoryTopic, partition: int) -> PartitionView:
        """Return the view up to an end captured now."""
        place = self.place(topic, partition)
        self.follower.require_fresh(self.follower.tier_partition(place), 0)
        return self.follower.partition(place)

    def bounds(self, topic: StoryTopic, partition: int) -> LocalBounds:
        return self.broker.control.bounds(topic.name, partition)


@dataclass
class _Partition:
    eyes: Eyes
    topic: StoryTopic
    partition: int

    @property
    def view(self) -> PartitionView:
        return self.eyes.view(self.topic, self.partition)

    @property
    def bounds(self) -> LocalBounds:
        return self.eyes.bounds(self.topic, self.partition)


@dataclass
class RemoteTier(_Partition):
    def holds(self, first: int, last: int) -> RemoteTier:
        """Require exactly these offsets, without a gap; every record of them comes back from the store as written."""
        coverage = self.view.coverage
        ranges = [(each.offsets.start, each.offsets.end) for each in coverage.owned]
        assert ranges, "the remote tier is empty"
        assert (ranges[0][0], ranges[-1][1]) == (first, last), ranges
        assert not coverage.gaps(OffsetRange(Offset(first), Offset(last))), ranges
        level = Isolation.READ_UNCOMMITTED
        begin = max(first, self.view.log_start or 0)
        read = _values(self.eyes, self.topic, self.partition, begin, last + 1, level, Tier.REMOTE)[0]
        assert read == self.topic.truth(self.partition, begin, last + 1, committed=False)
        return self

    def has_segments_from(self, *bases: int) -> RemoteTier:
        """Require readable segments with these first offsets."""
        assert [each.offsets.start for each in self.view.readable] == [*bases]
        return self

    def has_epochs_from(self, *starts: int) -> RemoteTier:
        """Require the first offset of every leader epoch of the logical lineage."""
        assert [entry.start_offset for entry in self.view.lineage.entries] == [*starts], self.view.lineage
        return self

    def is_empty(self) -> RemoteTier:
        """Require that nothing is readable, and no object is in the store."""
        assert not self.view.readable
        left = self.objects()
        assert not left, left
        return self

    def objects(self) -> list[str]:
        """Return the keys of this partition's objects in the store."""
        place = self.eyes.place(self.topic, self.partition)
        keys = [each.key for each in self.eyes.cluster.store.list("")]
        return [key for key in keys if f"{place.topic_id}/{place.partition}/" in key]


@dataclass
class LocalTier(_Partition):
    def starts_at(self, offset: int) -> LocalTier:
        """Require this start by ListOffsets and in the leader's folder."""
        assert self.bounds.local_start == offset
        leader = self.eyes.broker.control.topic(self.topic.name).partitions[self.partition].leader
        assert leader is not None
        folder = f"{self.topic.name}-{self.partition}"

        def first() -> int:
            folders = [each / folder for each in self.eyes.cluster.log_folders(leader - 1)]
            return min((int(path.stem) for each in folders for path in each.glob("*.log")), default=-1)

        eventually(lambda: first() <= offset and self._no_segment_below(leader - 1, offset))
        return self

    def _no_segment_below(self, broker: int, offset: int) -> bool:
        """Return whether whole segments below the start are deleted: a broker deletes them a little later."""
        folder = f"{self.topic.name}-{self.partition}"
        folders = [each / folder for each in self.eyes.cluster.log_folders(broker)]
        bases = sorted(int(path.stem) for each in folders for path in each.glob("*.log"))
        return sum(base <= offset for base in bases) == 1


@dataclass
class LogicalLog(_Partition):
    def starts_at(self, offset: int) -> LogicalLog:
        assert self.view.log_start == offset, self.view.log_start
        return self

    def ends_at(self, offset: int) -> LogicalLog:
        assert self.bounds.high_watermark == offset, self.bounds
        return self

    def finds_time(self, at_ms: int, offset: int | None) -> LogicalLog:
        """Require this offset for the first record of this time or later."""
        place = self.eyes.reader.offset_for_time(self.topic.name, self.partition, at_ms)
        assert (None if place is None else place[0]) == offset, place
        return self


@dataclass
class Reader(_Partition):
    """A reader, like clients of tierstate: `LogReader`, local tier first."""

    isolation: Isolation
    saw: Saw

    def reads_from(self, first: int, *, total: int, remote: int) -> Reader:
        """Read to the end: exactly the written records, ``total`` of them, ``remote`` of them from the remote tier."""
        end = self.bounds.end(self.isolation)
        read, from_remote = _values(self.eyes, self.topic, self.partition, first, end, self.isolation, Tier.AUTO)
        self._is_what_was_written(first, end, read)
        assert (len(read), from_remote) == (total, remote)
        self.saw("REMOTE_READ", from_remote)
        self.saw("LOCAL_READ", len(read) - from_remote)
        return self

    def reads_all(self) -> Reader:
        """Read from the log start to the end: exactly the written records, from either tier."""
        bounds, view = self.bounds, self.view
        start = view.log_start if view.log_start is not None else bounds.local_start
        end = bounds.end(self.isolation)
        read, remote = _values(self.eyes, self.topic, self.partition, start, end, self.isolation, Tier.AUTO)
        self._is_what_was_written(start, end, read)
        self.saw("REMOTE_READ", remote)
        self.saw("LOCAL_READ", len(read) - remote)
        return self

    def _is_what_was_written(self, start: int, end: int, read: dict[int, bytes]) -> None:
        """Require the written records, and the same for a Kafka client through the proxy."""
        assert read == self.topic.truth(self.partition, start, end, self.isolation is Isolation.READ_COMMITTED)
        values: dict[int, bytes | None] = {}
        with self._plain(self.eyes.proxied) as consumer:
            for batch in consumer.records(self.topic.name, self.partition, Offset(start), Offset(end)):
                assert not values.keys() & {each.offset for each in batch}, "a record was read twice"
                values |= {each.offset: each.value for each in batch}
        assert values == read

    def _plain(self, config: dict[str, str]) -> closing[PlainConsumer]:
        return closing(PlainConsumer(config, self.isolation, SystemClock()))

    def is_refused(self, offset: int) -> Reader:
        """Require that the offset is out of range, also through the proxy."""
        with pytest.raises(OffsetOutOfRange):
            self.eyes.reader.fetch(self.topic.name, self.partition, offset)
        with self._plain(self.eyes.proxied) as consumer, pytest.raises(OffsetOutOfRange):
            list(consumer.records(self.topic.name, self.partition, Offset(offset), Offset(offset + 1)))
        self.saw("READ_REFUSED", 1)
        return self

    def reads_what_kafka_reads_of_the_twin(self) -> Reader:
        """Compare the digest of both tiers with that of Kafka's own client on the untiered topic."""
        assert self.topic.twin is not None
        with self._plain(self.eyes.cluster.sandbox.client_config) as consumer:
            truth = _digest(ConsumerSource(consumer), self.topic.twin, self.partition, self.isolation)
        with self._plain(self.eyes.proxied) as consumer:
            proxied = _digest(ConsumerSource(consumer), self.topic.name, self.partition, self.isolation)
        ours = _digest(self.eyes.reader, self.topic.name, self.partition, self.isolation)
        assert ours[:2] == proxied[:2] == truth[:2]
        self.saw("REMOTE_READ", ours[2])
        self.saw("LOCAL_READ", ours[0] - ours[2])
        return self


def _values(
    eyes: Eyes, topic: StoryTopic, partition: int, first: int, end: int, isolation: Isolation, tier: Tier
) -> tuple[dict[int, bytes], int]:
    """Return values by offset, and how many of them came from the remote tier."""
    values_read: dict[int, bytes] = {}
    remote = 0
    source = eyes.reader
    extent = Extent(Offset(first), Offset(end))
    for batch, served in source.records(topic.name, partition, extent, isolation, tier):
        offsets, values = batch.column("offset").to_pylist(), batch.column("value").to_pylist()
        assert not values_read.keys() & {*offsets}, "a record was read twice"
        values_read |= dict(zip(offsets, values, strict=True))
        remote += len(offsets) if served is Tier.REMOTE else 0
    return values_read, remote


def _digest(source: RecordSource, topic: str, partition: int, isolation: Isolation) -> tuple[int, str, int]:
    """Return records, digest, and how many records came from the remote tier."""
    digest, remote = RecordDigest(), 0
    extent = source.extent(topic, partition, isolation, Tier.AUTO)
    for batch, served in source.records(topic, partition, extent, isolation, Tier.AUTO):
        digest.update(batch)
        remote += batch.num_rows if served is Tier.REMOTE else 0
    return digest.count, digest.hexdigest(), remote
