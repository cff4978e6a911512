"""Measures periodically how far a view is behind its topic, so that callers need not wait for a broker.

It runs in its own threads, because each query takes long while the broker does not answer. During a query, callers
get the last values.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from ..broker.tier_topic import TierTopic
from ..runtime.clock import Clock
from ..runtime.watchdog import alive, go_round
from ..state.errors import TierstateError
from ..state.offsets import Position
from .follower import Follower

LOOK_S = 10.0
PROBLEMS_S = 60.0


class ViewWatch:
    """Watches every tier-state partition. Reading is thread-safe and never waits."""

    def __init__(self, topic: TierTopic, follower: Follower, clock: Clock) -> None:
        self._topic, self._follower, self._clock = topic, follower, clock
        self._numbers = range(topic.mapped_partitions)
        self._began = clock.monotonic()
        self._ends: dict[int, tuple[Position, float]] = {}
        """The last known ends, and when each was captured."""
        self._reached: dict[int, float] = {}
        self._away: dict[int, str] = {}
        self.problems: int | None = None
        """The number of problems with the topic's configuration, or None if it was never read."""
        self._beheaded: dict[int, Position] = {}

    def run(self, stop: threading.Event) -> None:
        go_round("view watch", stop, lambda: self.look(stop), lambda: LOOK_S)

    def look(self, stop: threading.Event) -> None:
        """Query the end of every tier-state partition once. If a query fails, the partition keeps its last values."""
        asked_at, ends = self._clock.monotonic(), self._topic.ends(self._numbers)
        for number in self._numbers:
            if stop.is_set():
                return
            alive()  # without a broker, each query takes until its time-out
            self._settle(number)
            at = asked_at if number in ends else self._clock.monotonic()
            try:
                self._ends[number] = ends[number] if number in ends else self._topic.end(number), at
                self._away.pop(number, None)
            except TierstateError as error:
                self._away[number] = str(error)
            self._settle(number)

    def run_problems(self, stop: threading.Event) -> None:
        """Call `look_at_problems` periodically until ``stop`` is set. Needs its own thread, because it waits long."""
        go_round("topic watch", stop, self.look_at_problems, lambda: PROBLEMS_S)

    def look_at_problems(self) -> None:
        """Query the topic's configuration and log start offsets once. Values that cannot be read stay unchanged."""
        for number, start in self._topic.starts(self._numbers).items():
            if start > 0:
                self._beheaded[number] = start
            else:
                self._beheaded.pop(number, None)
        with suppress(TierstateError):
            self.problems = len(self._topic.problems())

    def positions(self) -> dict[int, int]:
        """Return the positions of the next records to apply. Raises ViewBehind while there is no view."""
        store = self._follower.store
        return {number: store.position(number) for number in self._numbers}

    def lags(self) -> dict[int, int]:
        """Return the number of unapplied positions below each last known end. Unknown ends are left out."""
        at = self.positions()
        return {number: max(0, end - at[number]) for number, (end, _) in sorted(self._ends.items())}

    def ages(self) -> dict[int, float]:
        """Return the seconds since the view was last seen at an end, or since the watch was created if it never was."""
        for number in self._numbers:
            self._settle(number)
        now = self._clock.monotonic()
        return {number: max(0.0, now - self._reached.get(number, self._began)) for number in self._numbers}

    def reached(self, tier_partition: int) -> bool:
        """Return whether the view was ever seen at an end of this partition."""
        return tier_partition in self._reached

    @property
    def away(self) -> list[str]:
        """The errors of the ends that the last queries could not get, in order of tier-state partition."""
        return [reason for _, reason in sorted(self._away.items())]

    @property
    def beheaded(self) -> dict[int, Position]:
        """The log start offsets of tier-state partitions that do not begin at 0. Facts are missing there."""
        return dict(sorted(self._beheaded.items()))

    def _settle(self, number: int) -> None:
        """If the view has reached the captured end, record when that end was captured."""
        end, captured_at = self._ends.get(number, (None, 0.0))
        if end is not None and self._follower.lost is None and self._follower.store.position(number) >= end:
            self._reached[number] = captured_at
