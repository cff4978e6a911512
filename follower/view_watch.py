"""How far a view is behind its topic, looked up now and then, so that callers that need it do not wait for a broker.

It has threads of its own: while the topic does not answer, every look takes long, and the last values are returned,
older and older.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass

from ..broker.tier_topic import TierTopic
from ..runtime.clock import Clock
from ..runtime.watchdog import alive, go_round
from ..state.errors import TierstateError
from ..state.offsets import Position
from .follower import Follower

LOOK_S = 10.0
PROBLEMS_S = 60.0


@dataclass(frozen=True, slots=True)
class _End:
    position: Position
    captured_at: float


class ViewWatch:
    """Watches every tier-state partition. Reading is thread-safe and never waits."""

    def __init__(self, topic: TierTopic, follower: Follower, clock: Clock) -> None:
        self._topic, self._follower, self._clock = topic, follower, clock
        self._numbers = range(topic.mapped_partitions)
        self._began = clock.monotonic()
        self._ends: dict[int, _End] = {}
        self._reached: dict[int, float] = {}
        self._away: dict[int, str] = {}
        self._problems: int | None = None
        self._beheaded: dict[int, Position] = {}

    def run(self, stop: threading.Event) -> None:
        """Look again and again until ``stop`` is set."""
        go_round("view watch", stop, lambda: self.look(stop), lambda: LOOK_S)

    def look(self, stop: threading.Event) -> None:
        """Look once at every end. A partition that does not answer keeps its last values."""
        asked_at, ends = self._clock.monotonic(), self._topic.ends(self._numbers)
        for number in self._numbers:
            if stop.is_set():
                return
            alive()  # with the topic away, each end takes its time
            self._settle(number)
            at = asked_at if number in ends else self._clock.monotonic()
            try:
                self._ends[number] = _End(ends[number] if number in ends else self._topic.end(number), at)
                self._away.pop(number, None)
            except TierstateError as error:
                self._away[number] = str(error)
            self._settle(number)

    def run_problems(self, stop: threading.Event) -> None:
        """Look again and again until ``stop`` is set. In its own thread: without a broker, this waits much longer."""
        go_round("topic watch", stop, self.look_at_problems, lambda: PROBLEMS_S)

    def look_at_problems(self) -> None:
        """Look once at the topic's configuration and where it begins. Values that cannot be read stay as last known."""
        for number, start in self._topic.starts(self._numbers).items():
            if start > 0:
                self._beheaded[number] = start
            else:
                self._beheaded.pop(number, None)
        with suppress(TierstateError):
            self._problems = len(self._topic.problems())

    def positions(self) -> dict[int, int]:
        """Return the positions of the next records to apply. Raises ViewBehind while there is no view."""
        store = self._follower.store
        return {number: store.position(number) for number in self._numbers}

    def lags(self) -> dict[int, int]:
        """Return how many records below the last known end are not applied, without partitions that never answered."""
        at = self.positions()
        return {number: max(0, end.position - at[number]) for number, end in sorted(self._ends.items())}

    def ages(self) -> dict[int, float]:
        """Return seconds since the view was last at an end, or since this began. They grow while nothing answers."""
        for number in self._numbers:
            self._settle(number)
        now = self._clock.monotonic()
        return {number: max(0.0, now - self._reached.get(number, self._began)) for number in self._numbers}

    def reached(self, tier_partition: int) -> bool:
        """Return whether the view was ever seen at an end of this partition."""
        return tier_partition in self._reached

    @property
    def away(self) -> list[str]:
        """The reasons why ends are unknown now."""
        return [reason for _, reason in sorted(self._away.items())]

    @property
    def beheaded(self) -> dict[int, Position]:
        """Tier-state partitions that do not begin at 0, and where they do: facts are missing."""
        return dict(sorted(self._beheaded.items()))

    @property
    def problems(self) -> int | None:
        """The number of problems with the topic's configuration; None while it was never learned."""
        return self._problems

    def _settle(self, number: int) -> None:
        """Note it if the view has reached the captured end."""
        end = self._ends.get(number)
        if end is not None and self._follower.lost is None and self._follower.store.position(number) >= end.position:
            self._reached[number] = end.captured_at
