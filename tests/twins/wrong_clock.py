"""A clock that is wrong by a number of seconds, which a test may change. Its monotonic seconds are right."""

from __future__ import annotations

from tierstate.runtime.clock import Clock
from tierstate.state.offsets import TimestampMs

DAY_S = 86_400.0


class WrongClock:
    """A clock that is ``ahead_s`` seconds ahead of ``right``, or behind if negative."""

    def __init__(self, right: Clock, ahead_s: float = 0.0) -> None:
        self._right, self.ahead_s = right, ahead_s

    def now_ms(self) -> TimestampMs:
        return TimestampMs(self._right.now_ms() + round(self.ahead_s * 1000))

    def monotonic(self) -> float:
        return self._right.monotonic()

    def sleep(self, seconds: float) -> None:
        self._right.sleep(seconds)
