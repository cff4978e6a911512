"""The options with which one process follows the tier-state topic, and the partitions that its view keeps.

The records of other partitions are read, and dropped undecoded. A view never shows a partition of which a record was
dropped. The store records which partitions were dropped. It adds such a partition again only with all its facts, by a
replay of the tier-state partition up to the view's position. ``meta/topic`` and foreign keys are always kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..runtime.listener import Listener, ignore
from ..state.ids import TopicIdPartition
from ..state.keys import Places
from ..state.offsets import Position
from ..state.view import Entry, ViewStore

Keep = Callable[[int, TopicIdPartition], bool]
"""Returns whether a view keeps the facts of a user partition. Arguments: tier-state partition, user partition."""
Seed = Callable[[ViewStore, int, Position], object]
"""Fills a tier-state partition of an empty store from a checkpoint not beyond this end, if a usable one exists."""


@dataclass(frozen=True, slots=True)
class Following:
    """``tier_partitions``: None means all. ``keep`` selects the partitions whose facts are kept; None means all.
    ``seed`` fills an empty view from a checkpoint. ``tail``: run a thread. Without a thread, `Follower.advance`,
    `wait_applied` and `require_fresh` iterate; the last two raise ViewBehind as soon as an iteration changes nothing.
    ``poll_s``: longest wait of one poll of the thread. ``listener`` receives the events about facts and rebuilds.
    """

    tier_partitions: Iterable[int] | None = None
    keep: Keep | None = None
    seed: Seed | None = None
    tail: bool = True
    poll_s: float = 0.5
    listener: Listener = ignore


EVERYTHING = Following()


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
