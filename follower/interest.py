"""Selects the partitions that a view keeps. The records of all other partitions are read, and dropped undecoded.

A view never shows a partition of which a record was dropped. The store records which partitions were dropped. It adds
such a partition again only with all its facts, by a replay of the tier-state partition up to the view's position.
``meta/topic`` and foreign keys are always kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..state.facts import UnknownFact
from ..state.ids import TopicIdPartition
from ..state.keys import Places, tier_partition_of
from ..state.view import Entry, MemoryView, ViewStore

Keep = Callable[[int, TopicIdPartition], bool]
"""Returns whether a view keeps the facts of a user partition. Arguments: tier-state partition, user partition."""


class Interest:
    """The selection by ``keep``; None selects all. `reconsider` alone changes the selection: answers are cached."""

    def __init__(self, partitions: int, keep: Keep | None = None) -> None:
        self.keep = keep
        self._places = Places(partitions)
        self._answers: dict[TopicIdPartition, bool] = {}

    def reconsider(self) -> None:
        """Clear the cache, so that ``keep`` is called again for every partition."""
        self._answers.clear()

    def wants(self, tier_partition: int, partition: TopicIdPartition) -> bool:
        if self.keep is None:
            return True
        answer = self._answers.get(partition)
        if answer is None:
            answer = self._answers[partition] = self.keep(tier_partition, partition)
        return answer

    def split(self, tier_partition: int, entries: Sequence[Entry]) -> tuple[Sequence[Entry], set[TopicIdPartition]]:
        """Return the entries to keep, and the partitions of which entries were dropped."""
        if self.keep is None:
            return entries, set()
        kept: list[Entry] = []
        dropped: set[TopicIdPartition] = set()
        for entry in entries:
            partition = self._places.of(tier_partition, entry.key).partition
            if partition is None or self.wants(tier_partition, partition):
                kept.append(entry)
            else:
                dropped.add(partition)
        return kept, dropped

    def named(self, tier_partition: int, entries: Sequence[Entry]) -> frozenset[TopicIdPartition]:
        """Return the partitions to which the keys of these entries belong."""
        partitions = (self._places.of(tier_partition, entry.key).partition for entry in entries)
        return frozenset(partition for partition in partitions if partition is not None)


def unwanted(store: ViewStore, interest: Interest, partitions: int) -> list[tuple[int, TopicIdPartition]]:
    """Return the partitions in a view that are no longer wanted."""
    if interest.keep is None:
        return []
    standing = ((tier_partition_of(partition, partitions), partition) for partition in store.partitions())
    return [(number, partition) for number, partition in standing if not interest.wants(number, partition)]


def missed(store: ViewStore, interest: Interest, tier_partition: int) -> frozenset[TopicIdPartition]:
    """Return the partitions that were dropped from a view and are wanted now."""
    return frozenset(each for each in store.dropped(tier_partition) if interest.wants(tier_partition, each))


def undecoded(partitions: int) -> MemoryView:
    """Return a memory store that does not decode values, for entries whose facts are never read."""
    return MemoryView(lambda key, value: UnknownFact(key, "not decoded"), partitions)
