"""Builds a whole view: from a checkpoint where there is a good one, then from the topic, up to captured ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..runtime.clock import Clock
from ..state.errors import CorruptData, Fenced, PositionLost, ViewBehind
from ..state.offsets import Position
from ..state.view import ViewStore
from .as_of import AsOf
from .generations import Generations
from .interest import Interest, missed, unwanted
from .replay import catch_up, check_place, take_back
from .same_history import check_same
from .until_stopped import UntilStopped

Seed = Callable[[ViewStore, int, Position], object]
"""Fills an empty store's tier-state partition from a checkpoint below this end, when there is a good one."""


class Builder:
    """Builds views, and gives a view the partitions that `Interest` wants. For the one thread that writes."""

    def __init__(
        self,
        topic: UntilStopped,
        generations: Generations,
        seed: Seed | None,
        interest: Interest,
        clock: Clock,
        tier_partitions: Sequence[int],
    ) -> None:
        self._topic, self._generations, self._seed, self._interest = topic, generations, seed, interest
        self._clock, self._numbers, self._stop = clock, tier_partitions, topic.stop

    def rebuilt(self, as_of: AsOf) -> ViewStore:
        """Return a fresh, installed view. Raises ViewBehind when it must be retried, and what topic and disk raise."""
        try:
            try:
                return self._installed(as_of, self._seed)
            except PositionLost:
                if self._seed is None:
                    raise
                return self._installed(as_of, None)  # a checkpoint of a branch of the log that was lost
        except (PositionLost, CorruptData) as lost:
            raise ViewBehind("a rebuild of the view failed, and is tried again", reason=lost) from lost

    def _installed(self, as_of: AsOf, seed: Seed | None) -> ViewStore:
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
        self.check_topic_id()  # first: another topic may lack the partitions that are asked for now
        at_ms = self._clock.now_ms()
        ends = {number: self._topic.end(number) for number in self._numbers}
        if seed is not None:
            for number, end in ends.items():
                seed(fresh, number, end)
            check_place(self._topic, fresh, self._numbers)
        catch_up(self._topic, fresh, ends, self._stop, interest=self._interest)
        if self._stop.is_set():
            raise ViewBehind("stopped during a rebuild")
        self.settle(fresh)  # a checkpoint has every partition
        for number in self._numbers:
            fresh.mark_as_of(number, at_ms)
        self.check_topic_id()  # never the facts of another topic

    def settle(self, store: ViewStore) -> None:
        """Drop what is no longer wanted, take back what is wanted again."""
        for number, partition in unwanted(store, self._interest, self._topic.mapped_partitions):
            store.drop(number, partition)
        for number in self._numbers:
            partitions = missed(store, self._interest, number)
            if partitions and not take_back(self._topic, store, number, partitions, self._stop):
                raise ViewBehind("stopped while taking partitions back", tier_partition=number)

    def check_same(self, store: ViewStore) -> None:
        """Raise PositionLost when the topic is no longer the one that the store was read from."""
        for number in self._numbers:
            check_same(self._topic, number, store.anchor(number), store.as_of(number), self._clock.now_ms())

    def check_topic_id(self) -> None:
        """Raise Fenced when another topic has this name now: this process cannot recover from that."""
        if self._topic.current_topic_id() != self._topic.topic_id:
            raise Fenced(
                "the tier-state topic was re-created: this process must be started again",
                topic_id=self._topic.topic_id,
            )
