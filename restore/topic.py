"""Restore a topic: the plan with its price, then all partitions, each on its own."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from ..broker.fenced_producer import FencedProducer
from ..broker.open import Broker
from ..fetch.plan import planned
from ..fetch.read_price import GET_PRICE, PUT_PRICE, ReadPrice
from ..fetch.reader import LogReader
from ..log.batch import iter_batches
from ..runtime.operation import run
from ..state.errors import TierstateError
from ..state.ids import TopicId
from ..state.offsets import Extent, TimestampMs
from ..state.routing import Isolation, Tier
from ..storage.object_store import ObjectStore
from .ledger import Ledger, Origin, Progress
from .names import steps_prefix
from .partition import PartitionRestore, ReadPieces, Restored, TargetPartition, Tools

AT_ONCE = 4
"""Partitions that are restored at the same time."""


@dataclass(frozen=True, slots=True)
class Source:
    """The topic to restore. ``cluster_id``: of the cluster in which it was written. ``topic``: as the reader knows it,
    which is the id of a deleted topic. ``name``: as the cluster knew it. ``ranges``: by partition."""

    reader: LogReader
    cluster_id: str
    topic: str
    name: str
    topic_id: TopicId
    ranges: Mapping[int, Extent]

    def origin(self, partition: int) -> Origin:
        return Origin(self.cluster_id, self.name, str(self.topic_id), partition)

    def pieces(self, partition: int) -> ReadPieces:
        """Return the function that reads this partition's offsets ``[start, end)``."""
        return partial(self.reader.scan, self.topic, partition)

    def oldest(self) -> TimestampMs | None:
        """Return the time of the first batch of all ranges, which is about that of the oldest record."""
        times = [time for number, extent in self.ranges.items() if (time := self._first_time(number, extent))]
        return min(times, default=None)

    def _first_time(self, partition: int, extent: Extent) -> TimestampMs | None:
        if extent.start >= extent.end:
            return None
        piece = self.reader.fetch(self.topic, partition, extent.start, max_bytes=1)
        batches = iter_batches(piece.data, source=piece.source(self.topic, partition), position=piece.position)
        return next((TimestampMs(each.max_timestamp) for each in batches if not each.is_control), None)

    def price(self, chunk_bytes: int) -> dict[str, object]:
        """Return what reading the ranges takes, and what it costs in requests."""
        reads = ReadPrice()
        ranges = {(self.topic, number): extent for number, extent in self.ranges.items()}
        for each in planned(self.reader, ranges, isolation=Isolation.READ_COMMITTED, tier=Tier.AUTO):
            reads.add(each.whole.parts)
        puts = 4 * len(self.ranges) + int(reads.log_bytes) // chunk_bytes
        return {
            "offsets": reads.offsets,
            "local_offsets": reads.local_offsets,
            "segments": len(reads.segments),
            "remote_bytes": int(reads.remote_bytes),
            "log_bytes": int(reads.log_bytes),
            "gets": reads.gets,
            "puts": puts,
            "dollars": round(reads.gets * GET_PRICE + puts * PUT_PRICE, 6),
        }


@dataclass(frozen=True, slots=True)
class Target:
    """The topic to restore into. ``store``: keeps the ledgers."""

    broker: Broker
    cluster_id: str
    topic: str
    topic_id: TopicId
    store: ObjectStore

    def ledger(self, partition: int) -> Ledger:
        return Ledger(self.store, steps_prefix(self.cluster_id, self.topic_id, partition))

    def progress(self, partition: int) -> Progress | None:
        return self.ledger(partition).read()

    def producer(self, partition: int, tools: Tools) -> FencedProducer:
        # the topic id: a topic that is deleted and created again has other producers
        transactional_id = f"tierstate-restore-{self.topic}-{partition}-{self.topic_id}"
        return FencedProducer(self.broker.raw, tools.clock, self.topic, partition, transactional_id)


@dataclass(slots=True)
class TopicRestored:
    """The results by partition, and the errors of partitions that are not restored to their end."""

    partitions: dict[int, Restored] = field(default_factory=dict)
    errors: dict[int, TierstateError] = field(default_factory=dict)


def restore_topic(source: Source, target: Target, tools: Tools) -> TopicRestored:
    """Restore all ranges. An error of one partition does not stop the others."""
    result = TopicRestored()

    def one(partition: int) -> None:
        try:
            result.partitions[partition] = restore_partition(source, target, partition, tools)
        except TierstateError as error:
            result.errors[partition] = error

    with ThreadPoolExecutor(min(AT_ONCE, max(1, len(source.ranges))), "restore") as pool:
        list(pool.map(one, source.ranges))
    return result


def restore_partition(source: Source, target: Target, partition: int, tools: Tools) -> Restored:
    place = TargetPartition(target.topic, target.topic_id, partition, target.broker.reads)
    with closing(target.producer(partition, tools)) as producer:
        operation = PartitionRestore(
            source.origin(partition), source.pieces(partition), place, target.ledger(partition), producer, tools
        )
        return run(operation.steps(source.ranges[partition]))
