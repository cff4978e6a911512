"""How far a view is behind its topic, looked up now and then, so that whoever wants to know need not wait for a broker.

Threads of its own: while the topic is away every look takes long, and what it saw last goes on being told, older and
older.
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
    """Of every tier-state partition. Reading is thread-safe and never waits."""

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
        """Until ``stop``."""
        go_round("view watch", stop, lambda: self.look(stop), lambda: LOOK_S)

    def look(self, stop: threading.Event) -> None:
        """Once at every end. A partition that does not answer keeps what was known of it."""
        asked, ends = self._clock.monotonic(), self._topic.ends(self._numbers)
        for number in self._numbers:
            if stop.is_set():
                return
            alive()  # with the topic away, each end takes its time
            self._settle(number)
            at = asked if number in ends else self._clock.monotonic()
            try:
                self._ends[number] = _End(ends[number] if number in ends else self._topic.end(number), at)
                self._away.pop(number, None)
            except TierstateError as error:
                self._away[number] = str(error)
            self._settle(number)

    def run_problems(self, stop: threading.Event) -> None:
        """Until ``stop``. In a thread of its own: where no broker answers, this waits for much longer."""
        go_round("topic watch", stop, self.look_at_problems, lambda: PROBLEMS_S)

    def look_at_problems(self) -> None:
        """Once at the topic's configuration and where it begins. What cannot be asked stands as it was last known."""
        for number, start in self._topic.starts(self._numbers).items():
            if start > 0:
                self._beheaded[number] = start
            else:
                self._beheaded.pop(number, None)
        with suppress(TierstateError):
            self._problems = len(self._topic.problems())

    def positions(self) -> dict[int, int]:
        """Of the next record to apply. Raises ViewBehind while there is no view."""
        store = self._follower.store
        return {number: store.position(number) for number in self._numbers}

    def lags(self) -> dict[int, int]:
        """Records below the last known end that are not applied; a partition that never answered is left out."""
        at = self.positions()
        return {number: max(0, end.position - at[number]) for number, end in sorted(self._ends.items())}

    def ages(self) -> dict[int, float]:
        """Seconds since the view was last known to be at the end, or since this began. Grows while nothing answers."""
        for number in self._numbers:
            self._settle(number)
        now = self._clock.monotonic()
        return {number: max(0.0, now - self._reached.get(number, self._began)) for number in self._numbers}

    def reached(self, tier_partition: int) -> bool:
        """Whether the view was ever seen at an end of this partition."""
        return tier_partition in self._reached

    @property
    def away(self) -> list[str]:
        """Why ends are unknown now."""
        return [reason for _, reason in sorted(self._away.items())]

    @property
    def beheaded(self) -> dict[int, Position]:
        """Tier-state partitions that do not begin at 0, and where they do: facts are missing."""
        return dict(sorted(self._beheaded.items()))

    @property
    def problems(self) -> int | None:
        """In how many ways the topic's configuration is not what it must be; None: never learned."""
        return self._problems

    def _settle(self, number: int) -> None:
        """An end that was captured is reached."""
        end = self._ends.get(number)
        if end is not None and self._follower.lost is None and self._follower.store.position(number) >= end.position:
            self._reached[number] = end.captured_at
