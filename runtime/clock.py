"""The only file that calls the system's clocks: all other code gets a `Clock` as an argument."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from ..state.offsets import TimestampMs

R = TypeVar("R")


class Clock(Protocol):
    """Wall time for facts, monotonic time for deadlines, and sleeping."""

    def now_ms(self) -> TimestampMs:
        """Return the wall clock in milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The clocks of the machine."""

    def now_ms(self) -> TimestampMs:
        return TimestampMs(time.time_ns() // 1_000_000)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def repeated(
    clock: Clock, call: Callable[[], R], errors: tuple[type[Exception], ...], limit_s: float, pause_s: float
) -> R:
    """Return ``call()``. After one of ``errors``, call again, every ``pause_s`` seconds, for ``limit_s`` seconds.

    Raises the last error.
    """
    deadline = clock.monotonic() + limit_s
    while True:
        try:
            return call()
        except errors:
            if clock.monotonic() > deadline:
                raise
        clock.sleep(pause_s)
