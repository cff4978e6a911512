"""Keeps a view of Kafka's metadata topic near the topic's end, so that no reader waits for what came since."""

from __future__ import annotations

import threading

from ..runtime.clock import Clock
from ..runtime.watchdog import alive, go_round
from ..state.errors import TierstateError
from .view import MetadataView

LOOK_S = 5.0


class MetadataWatch:
    """Reads every metadata partition periodically. Reading its results is thread-safe and never waits."""

    def __init__(self, view: MetadataView, clock: Clock) -> None:
        self._view, self._clock, self._began = view, clock, clock.monotonic()
        self._trouble: str | None = None

    def run(self, stop: threading.Event) -> None:
        """Call `look` every `LOOK_S` seconds until ``stop`` is set."""
        go_round("view watch", stop, lambda: self.look(stop), lambda: LOOK_S)

    def look(self, stop: threading.Event) -> None:
        """Read each metadata partition up to its end once."""
        try:
            for number in range(self._view.metadata_partitions):
                if stop.is_set():
                    return
                alive()
                self._view.require_fresh(number, LOOK_S)
            self._trouble = None
        except TierstateError as error:
            self._trouble = str(error)

    def ages(self) -> dict[int, float]:
        """Return the seconds since each metadata partition was at its end, or since the watch began if it never was."""
        since = self._clock.monotonic() - self._began
        numbers = range(self._view.metadata_partitions)
        return {number: since if (age := self._view.age_s(number)) is None else age for number in numbers}

    def behind(self, max_age: float) -> list[str]:
        """Return the reasons why a reader that accepts a view of ``max_age`` seconds must not rely on this view."""
        reasons = [] if self._trouble is None else [f"the view does not get on: {self._trouble}"]
        numbers = range(self._view.metadata_partitions)
        unread = [number for number in numbers if self._view.age_s(number) is None]
        if unread:
            reasons.append(f"metadata partitions were not read to their end yet: {len(unread)}")
        elif max(self.ages().values(), default=0.0) >= max_age:
            reasons.append(f"the view is {max(self.ages().values()):.0f} s behind Kafka's metadata topic")
        return reasons
