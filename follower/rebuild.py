"""Builds a complete view: from a usable checkpoint if there is one, then from the topic up to captured ends."""

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
"""Fills a tier-state partition of an empty store from a checkpoint not beyond this end, if a usable one exists."""


class Builder:
    """Builds views, and adds and drops partitions as `Interest` selects. Only the writing thread may use it."""

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
        """Return a new, installed view. Raises ViewBehind if a retry is needed, and the errors of topic and disk."""
        try:
            try:
                return self._installed(as_of, self._seed)
            except PositionLost:
                if self._seed is None:
                    raise
                return self._installed(as_of, None)  # the checkpoint belongs to a lost branch of the log
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
        self.check_topic_id()  # first: a re-created topic may lack the partitions that are queried next
        at_ms = self._clock.now_ms()
        ends = {number: self._topic.end(number) for number in self._numbers}
        if seed is not None:
            for number, end in ends.items():
                seed(fresh, number, end)
            check_place(self._topic, fresh, self._numbers)
        catch_up(self._topic, fresh, ends, self._stop, interest=self._interest)
        if self._stop.is_set():
            raise ViewBehind("stopped during a rebuild")
        self.settle(fresh)  # a checkpoint also has unwanted partitions
        for number in self._numbers:
            fresh.mark_as_of(number, at_ms)
        self.check_topic_id()  # a view must not have facts of a re-created topic

    def settle(self, store: ViewStore) -> None:
        """Drop partitions that are no longer wanted, and add those wanted again. Raises ViewBehind if stopped."""
        for number, partition in unwanted(store, self._interest, self._topic.mapped_partitions):
            store.drop(number, partition)
        for number in self._numbers:
            partitions = missed(store, self._interest, number)
            if partitions and not take_back(self._topic, store, number, partitions, self._stop):
                raise ViewBehind("stopped while taking partitions back", tier_partition=number)

    def check_same(self, store: ViewStore) -> None:
        """Raise PositionLost if the topic no longer has the history that the store was read from."""
        for number in self._numbers:
            check_same(self._topic, number, store.anchor(number), store.as_of(number), self._clock.now_ms())

    def check_topic_id(self) -> None:
        """Raise Fenced when another topic has this name now: this process cannot recover from that."""
        if self._topic.current_topic_id() != self._topic.topic_id:
            raise Fenced(
                "the tier-state topic was re-created: this process must be started again",
                topic_id=self._topic.topic_id,
            )
