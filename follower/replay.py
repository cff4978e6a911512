"""Replay: apply the tier-state topic to a store, from the store's position up to captured ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from ..broker.tier_reader import UNKNOWN_EPOCH
from ..broker.tier_topic import TierReader, TierTopic
from ..state.errors import PositionLost
from ..state.ids import TopicIdPartition
from ..state.offsets import Position
from ..state.view import Entry, ViewStore
from .interest import Interest, undecoded


def reader_at(topic: TierTopic, store: ViewStore, tier_partitions: Collection[int]) -> TierReader:
    """Return a reader that begins at the store's positions. Raises PositionLost if the log begins above one of them."""
    positions = {number: store.position(number) for number in tier_partitions}
    epochs = {number: epoch for number in tier_partitions if (epoch := store.epoch(number)) != UNKNOWN_EPOCH}
    return topic.reader(positions, epochs)


def check_place(topic: TierTopic, store: ViewStore, tier_partitions: Collection[int]) -> None:
    """Raise PositionLost if the log begins above one of the store's positions, or was truncated below it."""
    reader = reader_at(topic, store, tier_partitions)
    try:
        reader.poll(0)
    finally:
        reader.close()


def catch_up(
    topic: TierTopic,
    store: ViewStore,
    ends: Mapping[int, Position],
    stop: threading.Event | None = None,
    *,
    keep: Callable[[int, Entry], bool] | None = None,
    interest: Interest | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Apply all records below ``ends``, and return the number of records read.

    An entry is not applied if ``keep`` returns False: tests of `diff` withhold a fact in this way. Partitions that
    ``interest`` does not want are dropped, and the store records that. ``progress`` is called with the number of
    records read so far. Ends early, without an error, if ``stop`` is set. Raises PositionLost after a truncation.
    """
    interest = interest or Interest(topic.mapped_partitions)
    pending_ends = {number: end for number, end in ends.items() if store.position(number) < end}
    if not pending_ends:
        return 0
    reader = reader_at(topic, store, pending_ends)
    read = 0
    try:
        while pending_ends and not (stop and stop.is_set()):
            batches = reader.poll(0.2)
            for batch in batches:
                number = batch.tier_partition
                end = ends[number]
                entries = [entry for entry in batch.entries if entry.position < end]
                read += len(entries)
                if keep is not None:
                    entries = [entry for entry in entries if keep(number, entry)]
                kept, dropped = interest.split(number, entries)
                next_position = Position(min(batch.following, end))
                store.apply(number, kept, next_position, batch.epoch, dropped, batch.anchor(next_position))
                if store.position(number) >= end:
                    pending_ends.pop(number, None)
                if progress:
                    progress(read)
            if not batches:
                _check_ends(topic, pending_ends)
    finally:
        reader.close()
    return read


def _check_ends(topic: TierTopic, ends: Mapping[int, Position]) -> None:
    """Raise PositionLost if the topic now ends below one of ``ends``. Called when no records come."""
    for number, end in ends.items():
        current_end = topic.end(number)
        if current_end < end:
            raise PositionLost(
                "the topic was truncated while it was read", tier_partition=number, end=current_end, wanted=end
            )


def take_back(
    topic: TierTopic,
    store: ViewStore,
    tier_partition: int,
    partitions: Collection[TopicIdPartition],
    stop: threading.Event,
) -> bool:
    """Add dropped partitions to the store again, by a replay of the topic up to the store's position.

    Returns False if ``stop`` was set before the replay ended; then the store is unchanged. The store's other partitions
    are never changed. Memory: the live sets of ``partitions``.
    """
    position = store.position(tier_partition)
    scratch = undecoded(topic.mapped_partitions)
    only = Interest(topic.mapped_partitions, lambda number, partition: partition in partitions)
    catch_up(topic, scratch, {tier_partition: position}, stop, interest=only)
    if scratch.position(tier_partition) < position:
        return False
    store.adopt(tier_partition, partitions, scratch)
    return True
