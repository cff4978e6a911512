"""Replay: apply the topic to a store, from where the store stands up to captured ends."""

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
    """Return a tail from where the store stands. Raises PositionLost when the log no longer has that place."""
    positions = {number: store.position(number) for number in tier_partitions}
    epochs = {number: epoch for number in tier_partitions if (epoch := store.epoch(number)) != UNKNOWN_EPOCH}
    return topic.reader(positions, epochs)


def check_place(topic: TierTopic, store: ViewStore, tier_partitions: Collection[int]) -> None:
    """Raise PositionLost when the log no longer has the place at which the store stands, also when that is the end."""
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
    """Apply everything below ``ends``; return the number of records read.

    ``keep`` drops entries before they are applied (a view from which a fact is withheld is how `diff` is tested).
    ``interest`` drops partitions, which the store records. Ends early, without an error, when ``stop`` is set. Raises
    PositionLost when the topic was truncated during the replay.
    """
    interest = interest or Interest(topic.mapped_partitions)
    behind = {number: end for number, end in ends.items() if store.position(number) < end}
    if not behind:
        return 0
    reader = reader_at(topic, store, behind)
    read = 0
    try:
        while behind and not (stop and stop.is_set()):
            batches = reader.poll(0.2)
            for batch in batches:
                number = batch.tier_partition
                end = ends[number]
                entries = [entry for entry in batch.entries if entry.position < end]
                read += len(entries)
                if keep is not None:
                    entries = [entry for entry in entries if keep(number, entry)]
                kept, dropped = interest.split(number, entries)
                following = Position(min(batch.following, end))
                store.apply(number, kept, following, batch.epoch, dropped, batch.anchor(following))
                if store.position(number) >= end:
                    behind.pop(number, None)
                if progress:
                    progress(read)
            if not batches:
                _check_ends(topic, behind)
    finally:
        reader.close()
    return read


def _check_ends(topic: TierTopic, ends: Mapping[int, Position]) -> None:
    """Check that the ends still exist when no records come."""
    for number, end in ends.items():
        now = topic.end(number)
        if now < end:
            raise PositionLost("the topic was truncated while it was read", tier_partition=number, end=now, wanted=end)


def take_back(
    topic: TierTopic,
    store: ViewStore,
    tier_partition: int,
    partitions: Collection[TopicIdPartition],
    stop: threading.Event,
) -> bool:
    """Take back partitions that a view had dropped, up to where it stands. Return False when ``stop`` was set first.

    The view's other partitions stay untouched all the while; memory: the live sets of those that are taken back.
    """
    position = store.position(tier_partition)
    scratch = undecoded(topic.mapped_partitions)
    only = Interest(topic.mapped_partitions, lambda number, partition: partition in partitions)
    catch_up(topic, scratch, {tier_partition: position}, stop, interest=only)
    if scratch.position(tier_partition) < position:
        return False
    store.adopt(tier_partition, partitions, scratch)
    return True
