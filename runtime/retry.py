"""Repeat failed calls, at the edge of an adapter only: exponential back-off with jitter, and a deadline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ..state.errors import BrokerUnavailable, StorageUnavailable, Throttled
from .clock import Clock
from .id_source import IdSource

T = TypeVar("T")
TRANSIENT: tuple[type[BaseException], ...] = (StorageUnavailable, BrokerUnavailable, Throttled)
"""Errors after which a call may be repeated. Not all of `Unavailable`: never repeat after an `UnknownOutcome`."""


@dataclass(frozen=True, slots=True)
class RetryDelays:
    """Delays in seconds: ``first``, then multiplied by ``factor`` after each failure, at most ``most``."""

    first: float = 0.1
    factor: float = 2.0
    most: float = 10.0

    def delay(self, failures: int, jitter: float) -> float:
        """Return the delay before the next attempt after ``failures`` >= 1; ``jitter`` in [0, 1) removes up to half."""
        # The limit of 64 avoids an OverflowError: 2.0 ** 5000 would raise it after a day of failures.
        whole = self.most if failures > 64 else min(self.most, self.first * self.factor ** (failures - 1))
        return whole * (1 - jitter / 2)


class Retry:
    """Repeats a call while errors are transient and the deadline has not passed. Then it raises the last error."""

    def __init__(self, clock: Clock, ids: IdSource, deadline_seconds: float, delays: RetryDelays | None = None) -> None:
        self._clock = clock
        self._ids = ids
        self._deadline_seconds = deadline_seconds
        self._delays = delays or RetryDelays()

    def call(self, act: Callable[[], T], repeat: tuple[type[BaseException], ...] = TRANSIENT) -> T:
        """Return the result of ``act``, which must be safe to repeat. Never sleeps past the deadline."""
        deadline = self._clock.monotonic() + self._deadline_seconds
        failures = 0
        while True:
            try:
                return act()
            except repeat:
                failures += 1
                delay = self._delays.delay(failures, self._ids.jitter())
                if self._clock.monotonic() + delay > deadline:
                    raise
                self._clock.sleep(delay)
