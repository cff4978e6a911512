"""A clock whose time only the test changes."""

from __future__ import annotations

import threading

from tierstate.state.offsets import TimestampMs


class ManualClock:
    """A clock in memory. Only `advance` and `sleep` change its time."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._ms = float(start_ms)
        self._lock = threading.Lock()

    def now_ms(self) -> TimestampMs:
        with self._lock:
            return TimestampMs(int(self._ms))

    def monotonic(self) -> float:
        with self._lock:
            return self._ms / 1000

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._ms += seconds * 1000
