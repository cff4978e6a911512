"""Watches whether any broker answers and accepts tierstate's login."""

from __future__ import annotations

import threading

from ..runtime.answer_watch import AnswerWatch
from ..runtime.clock import Clock
from ..runtime.watchdog import go_round
from .open import Broker

LOGIN_S = 30.0
TIMEOUT_S = 8.0
"""Seconds: enough for two silent brokers before the third one answers (`raw.METADATA_SECONDS`)."""


class BrokerWatch(AnswerWatch):
    """Sends a small Metadata request to any broker every two seconds. Logs in at each broker every ``LOGIN_S``."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker, self._clock = broker, clock
        self._logged_in_at = clock.monotonic()
        super().__init__(self._look, "no broker answers.", clock, every_s=2.0, again_s=2.0, timeout_s=TIMEOUT_S)

    def _look(self) -> None:
        self._broker.control.cluster()
        everywhere = self._clock.monotonic() - self._logged_in_at > LOGIN_S
        if everywhere:
            self._logged_in_at = self._clock.monotonic()
        self._broker.raw.log_in(everywhere=everywhere)

    def run(self, stop: threading.Event) -> None:
        """Check repeatedly until ``stop`` is set."""
        go_round("broker watch", stop, self.look, self.pause_s)
