"""The age of a view of the bucket alone. While the store is away, its service goes on by the view as it is."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ...follower.time_travel import NO_TIME
from ...runtime.answer_watch import AnswerWatch
from ...runtime.clock import Clock
from ...runtime.listener import ChoreFailed, Listener
from ...runtime.watchdog import go_round
from ...state.errors import TierstateError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...follower.bucket_view import BucketView
    from ...runtime.metrics import Metrics, Sample
    from ..opening.bucket_connection import BucketConnection

LONGEST_LOOK_S = 60.0
"""Seconds after which a look at the bucket counts as unanswered."""
CHORE = "view of the bucket"


class BucketWatch:
    """Adds to the view what was archived since, every ``follow_s`` seconds. Reading its results never waits."""

    def __init__(
        self, connection: BucketConnection, view: BucketView, clock: Clock, follow_s: float, listener: Listener
    ) -> None:
        """``view``: of the connection, which has just read it."""
        self._connection, self._view, self._clock, self._listener = connection, view, clock, listener
        self._listed_at = clock.monotonic()
        self._error: TierstateError | None = None
        self._watch = AnswerWatch(
            self._advance,
            "the bucket does not answer.",
            clock,
            every_s=follow_s,
            again_s=follow_s,
            timeout_s=LONGEST_LOOK_S,
        )

    def run(self, stop: threading.Event) -> None:
        """Call `look` until ``stop`` is set."""
        go_round("store watch", stop, self.look, self._watch.pause_s)

    def look(self) -> None:
        """List the archive once. A failure is an event; the view stays as it was, or is further."""
        self._watch.look()

    def _advance(self) -> None:
        began, last = self._clock.monotonic(), self._error
        try:
            self._connection.advance()
        except TierstateError as error:
            self._error = error
            text = f"reads go on by the view as it is: {error}"
            self._listener(ChoreFailed(CHORE, -1, text, again=str(error) == str(last)))
            raise
        self._listed_at, self._error = began, None

    def behind(self) -> list[str]:
        """Return why the view does not get on."""
        return [f"the view does not get on: {trouble}"] if (trouble := self._watch.trouble) else []

    def feed(self, metrics: Metrics, others: Callable[[], list[Sample]]) -> None:
        """Add the gauges of the view and of the store. ``others`` returns those of other stores."""
        url = self._connection.store.description
        metrics.gauge("tierstate_view_age_seconds", self._ages)
        metrics.gauge("tierstate_newest_fact_age_seconds", self._newest)
        metrics.gauge("tierstate_object_store_away", lambda: [((url,), self._is_away()), *others()])

    def _is_away(self) -> bool:
        """Return whether the store is silent. Other troubles are those of the archive."""
        answered_badly = self._error is not None and not isinstance(self._error, Unavailable)
        return self._watch.trouble is not None and not answered_badly

    def _ages(self) -> list[Sample]:
        age = self._clock.monotonic() - self._listed_at
        return [((str(number),), age) for number in self._view.replays]

    def _newest(self) -> list[Sample]:
        now, newest = self._clock.now_ms(), {n: each.newest_timestamp for n, each in self._view.replays.items()}
        return [((str(n),), max(0, now - time) / 1000) for n, time in newest.items() if time != NO_TIME]
