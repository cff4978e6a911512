"""Every agent has a clock of its own, and so has every broker; in some histories they are wrong by days, and stepped.

An agent and a broker are never wrong by the same: two clocks that agree are believed (`rules/clocks.py`).
"""

from __future__ import annotations

from random import Random

from tests.twins.wrong_clock import DAY_S, WrongClock
from tierstate.runtime.clock import Clock

AGENTS = (0.0, 0.0, 2 * DAY_S, -3 * DAY_S, 40 * DAY_S)
BROKERS = (0.0, 0.0, 5 * DAY_S, -7 * DAY_S)


class Clocks:
    """Those of one history. What they show is drawn apart: histories without wrong clocks go on as they would."""

    def __init__(self, seed: int, right: Clock) -> None:
        self._rnd = Random(f"wrong clocks {seed}")
        self.wrong = self._rnd.random() < 0.1
        self._agents = [WrongClock(right) for _ in range(3)]
        self._brokers = [0.0, 0.0, 0.0]
        self._set()

    def of_agent(self, broker: int) -> Clock:
        return self._agents[broker]

    def of_broker(self, broker: int) -> int:
        """How far it is ahead, milliseconds."""
        return round(self._brokers[broker] * 1000)

    def step(self, step: int) -> None:
        """Clocks are set, rightly or wrongly, while everything runs."""
        if step and step % 40 == 0:
            self._set()

    def _set(self) -> None:
        if not self.wrong:
            return
        for each in self._agents:
            each.ahead_s = self._rnd.choice(AGENTS)
        self._brokers = [self._rnd.choice(BROKERS) for _ in self._brokers]
