"""Clocks of agents and brokers. In some histories they are wrong by days, and are set again while everything runs.

No agent and broker are wrong by the same amount, because agents trust two clocks that agree (`rules/clocks.py`).
"""

from __future__ import annotations

from random import Random

from tests.twins.wrong_clock import DAY_S, WrongClock
from tierstate.runtime.clock import Clock

AGENTS = (0.0, 0.0, 2 * DAY_S, -3 * DAY_S, 40 * DAY_S)
BROKERS = (0.0, 0.0, 5 * DAY_S, -7 * DAY_S)


class Clocks:
    """The clocks of one history. A random generator of their own keeps histories without wrong clocks unchanged."""

    def __init__(self, seed: int, right: Clock) -> None:
        self._rnd = Random(f"wrong clocks {seed}")
        self.wrong = self._rnd.random() < 0.1
        self._agents = [WrongClock(right) for _ in range(3)]
        self._brokers = [0.0, 0.0, 0.0]
        self._set()

    def of_agent(self, broker: int) -> Clock:
        return self._agents[broker]

    def of_broker(self, broker: int) -> int:
        """Return how far the broker's clock is ahead, in milliseconds."""
        return round(self._brokers[broker] * 1000)

    def step(self, step: int) -> None:
        """Set all clocks at every 40th step, correctly or wrongly, in a history with wrong clocks."""
        if step and step % 40 == 0:
            self._set()

    def _set(self) -> None:
        if not self.wrong:
            return
        for each in self._agents:
            each.ahead_s = self._rnd.choice(AGENTS)
        self._brokers = [self._rnd.choice(BROKERS) for _ in self._brokers]
