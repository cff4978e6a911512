"""Replays the tier-state topic: applies its records to a store, from the store's positions up to captured ends.

A rebuild begins with a usable checkpoint if there is one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing

from ..broker.tier_reader import UNKNOWN_EPOCH
from ..broker.tier_topic import TierBatch, TierReader, TierTopic
from ..runtime.clock import Clock
from ..runtime.watchdog import alive
from ..state.errors import BrokerUnavailable, CorruptData, Fenced, PositionLost, Unavailable, ViewBehind
from ..state.facts import UnknownFact
from ..state.ids import TopicIdPartition
from ..state.keys import tier_partition_of
from ..state.offsets import Position
from ..state.view import MemoryView, ViewStore
from .as_of import AsOf, check_same
from .following import Interest, Seed
from .generations import Generations

POLL_S = 0.2
SILENT_POLLS = 150
"""Polls without a record, half a minute, after which `batches_until` raises BrokerUnavailable."""


def reader_at(topic: TierTopic, store: ViewStore, tier_partitions: Collection[int]) -> TierReader:
    """Return a reader that begins at the store's positions. Raises PositionLost if the log begins above one of them."""
    positions = {number: store.position(number) for number in tier_partitions}
    epochs = {number: epoch for number in tier_partitions if (epoch := store.epoch(number)) != UNKNOWN_EPOCH}
    return topic.reader(positions, epochs)


def catch_up(
    topic: TierTopic,
    store: ViewStore,
    ends: Mapping[int, Position],
    *,
    without: str | None = None,
    interest: Interest | None = None,
    progress: Callable[[int], None] | None = None,
    stop: threading.Event | None = None,
) -> int:
    """Apply all records below ``ends``, and return the number of records read.

    The fact under the key ``without`` is not applied. Partitions that ``interest`` does not want are dropped, and the
    store records that. ``progress`` is called with the number of records read so far. Raises PositionLost after a
    truncation, and Unavailable once ``stop`` is set.
    """
    interest = interest or Interest(topic.mapped_partitions)
    pending_ends = {number: end for number, end in ends.items() if store.position(number) < end}
    if not pending_ends:
        return 0
    read = 0
    with closing(reader_at(topic, store, pending_ends)) as reader:
        while pending_ends:
            batches = _poll(reader, stop)
            for batch in batches:
                number = batch.tier_partition
                end = ends[number]
                entries = [entry for entry in batch.entries if entry.position < end]
                read += len(entries)
                kept, dropped = interest.split(number, [entry for entry in entries if entry.key != without])
                next_position = Position(min(batch.following, end))
                store.apply(number, kept, next_position, batch.epoch, dropped, batch.anchor(next_position))
                if store.position(number) >= end:
                    pending_ends.pop(number, None)
                if progress:
                    progress(read)
            if not batches:
                _check_ends(topic, pending_ends)
    return read


def _check_ends(topic: TierTopic, ends: Mapping[int, Position]) -> None:
    """Raise PositionLost if the topic now ends below one of ``ends``. Called when no records come."""
    for number, end in ends.items():
        current_end = topic.end(number)
        if current_end < end:
            raise PositionLost(
                "the topic was truncated while it was read", tier_partition=number, end=current_end, wanted=end
            )


def _poll(reader: TierReader, stop: threading.Event | None) -> list[TierBatch]:
    if stop is not None and stop.is_set():
        raise Unavailable("this process stops")
    alive()  # tells the watchdog that a long replay has not stalled
    return reader.poll(POLL_S)


def take_back(
    topic: TierTopic,
    store: ViewStore,
    tier_partition: int,
    partitions: Collection[TopicIdPartition],
    stop: threading.Event | None = None,
) -> None:
    """Add dropped partitions to the store again, by a replay of the topic up to the store's position.

    The store's other partitions are never changed. Raises as `catch_up`. Memory: the live sets of ``partitions``.
    """
    scratch = MemoryView(lambda key, value: UnknownFact(key, "not decoded"), topic.mapped_partitions)
    only = Interest(topic.mapped_partitions, lambda number, partition: partition in partitions)
    catch_up(topic, scratch, {tier_partition: store.position(tier_partition)}, interest=only, stop=stop)
    store.adopt(tier_partition, partitions, scratch)


def batches_until(
    reader: TierReader, tier_partition: int, end: Position, stop: threading.Event | None = None
) -> Iterator[TierBatch]:
    """Yield batches until ``end`` is reached, then close the reader. The last batch may have records beyond ``end``.

    Raises BrokerUnavailable if no records come for half a minute, and Unavailable once ``stop`` is set.
    """
    silent = 0
    with closing(reader):
        while True:
            batches = _poll(reader, stop)
            silent = 0 if batches else silent + 1
            if silent >= SILENT_POLLS:
                raise BrokerUnavailable("tier-state topic returns nothing", tier_partition=tier_partition, end=end)
            for batch in batches:
                yield batch
                if batch.following >= end:
                    return


class Builder:
    """Builds views, and adds and drops partitions as `Interest` selects. Only the writing thread may use it."""

    def __init__(
        self,
        topic: TierTopic,
        generations: Generations,
        seed: Seed | None,
        interest: Interest,
        clock: Clock,
        tier_partitions: Sequence[int],
        stop: threading.Event,
    ) -> None:
        self._topic, self._generations, self._seed, self._interest = topic, generations, seed, interest
        self._clock, self._numbers, self._stop = clock, tier_partitions, stop

    def rebuild(self, as_of: AsOf) -> ViewStore:
        """Return a new, installed view. Raises ViewBehind if a retry is needed, and the errors of topic and disk."""
        try:
            try:
                return self._install(as_of, self._seed)
            except PositionLost:
                if self._seed is None:
                    raise
                return self._install(as_of, None)  # the checkpoint belongs to a lost branch of the log
        except (PositionLost, CorruptData) as lost:
            raise ViewBehind("a rebuild of the view failed, and is tried again", reason=lost) from lost

    def _install(self, as_of: AsOf, seed: Seed | None) -> ViewStore:
        fresh = self._generations.fresh()
        try:
            self._fill(fresh, seed)
            as_of.begin(fresh)
            self._generations.install(fresh)
        except BaseException:
            fresh.close()
            raise
        return fresh

    def _fill(self, fresh: ViewStore, seed: Seed | None) -> None:
        self.check_topic_id()  # first: a re-created topic may lack the partitions that are queried next
        at_ms = self._clock.now_ms()
        ends = {number: self._topic.end(number) for number in self._numbers}
        if seed is not None:
            for number, end in ends.items():
                seed(fresh, number, end)
            with closing(reader_at(self._topic, fresh, self._numbers)) as reader:
                reader.poll(0)  # raises PositionLost if the log begins above a checkpoint, or was truncated below it
        catch_up(self._topic, fresh, ends, interest=self._interest, stop=self._stop)
        self.settle(fresh)  # a checkpoint also has unwanted partitions
        for number in self._numbers:
            fresh.mark_as_of(number, at_ms)
        self.check_topic_id()  # a view must not have facts of a re-created topic

    def settle(self, store: ViewStore) -> None:
        """Drop partitions that are no longer wanted, and add those wanted again."""
        for partition in store.partitions() if self._interest.keep else ():
            number = tier_partition_of(partition, self._topic.mapped_partitions)
            if not self._interest.wants(number, partition):
                store.drop(number, partition)
        for number in self._numbers:
            partitions = frozenset(each for each in store.dropped(number) if self._interest.wants(number, each))
            if partitions:
                take_back(self._topic, store, number, partitions, self._stop)

    def check_same(self, store: ViewStore) -> None:
        """Raise PositionLost if the topic no longer has the history that the store was read from."""
        for number in self._numbers:
            check_same(self._topic, number, store.anchor(number), store.as_of(number), self._clock.now_ms())

    def check_topic_id(self) -> None:
        """Raise Fenced when another topic has this name now: this process cannot recover from that."""
        if self._topic.current_topic_id() != self._topic.topic_id:
            raise Fenced("the tier-state topic was re-created: restart this process", topic_id=self._topic.topic_id)
