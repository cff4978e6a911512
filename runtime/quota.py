"""A byte rate shared by threads: a token bucket that may go into debt, so one large write is never refused."""

from __future__ import annotations

import threading

from ..state.errors import Unavailable
from .clock import Clock
from .listener import Event, Listener, WriteRepeated
from .watchdog import alive

LOOK_S = 0.2
"""Seconds between two checks of a waiting thread whether the process stops."""


class ByteQuota:
    """A limit of ``bytes_per_second`` on average, with bursts of one second's worth. 0 means no limit."""

    def __init__(self, clock: Clock, bytes_per_second: int) -> None:
        self._clock = clock
        self._rate = bytes_per_second
        self._tokens = float(bytes_per_second)
        self._then = clock.monotonic()
        self._lock = threading.Lock()
        self._stopped = False
        self._waited = 0.0

    @property
    def waited(self) -> float:
        """Seconds that all callers of `take` together have waited until now."""
        return self._waited

    def take(self, size: int) -> float:
        """Wait until ``size`` bytes may be sent, and return the seconds waited. Later callers wait for this debt, too.

        Raises Unavailable once `stop` was called, also if there is no need to wait.
        """
        with self._lock:
            seconds = self._charge(size)
        left = seconds
        while not self._stopped:
            alive()  # a sign of life at every call, and during a long wait
            if left <= 0:
                return seconds
            pause = min(left, LOOK_S)
            self._clock.sleep(pause)
            with self._lock:
                self._waited += pause
            left -= pause
        raise Unavailable("the process is stopping")

    def stop(self) -> None:
        """Refuse every `take` from now on and end all waits. Returns at once; safe in any thread and signal handler."""
        self._stopped = True

    def try_take(self, size: int) -> float:
        """Charge ``size`` bytes and return 0, or charge nothing and return the seconds after which to try again."""
        with self._lock:
            if self._rate and self._refilled() <= 0:
                # Debt is paid before anything new: answers are large, and one may exceed the whole bucket.
                return max(-self._tokens, 1.0) / self._rate
            self._charge(size)
            return 0.0

    def owe(self, size: int) -> None:
        """Charge ``size`` bytes that were already sent, also beyond the quota."""
        with self._lock:
            self._charge(size)

    def _charge(self, size: int) -> float:
        if self._rate == 0:
            return 0.0
        self._tokens = self._refilled() - size
        return max(0.0, -self._tokens / self._rate)

    def _refilled(self) -> float:
        now = self._clock.monotonic()
        self._tokens = min(float(self._rate), self._tokens + (now - self._then) * self._rate)
        self._then = now
        return self._tokens


def repeats_taken_from(quota: ByteQuota) -> Listener:
    """Return a listener for a store, by which repeated writes wait for the quota, too. Raises as `ByteQuota.take`."""

    def take(event: Event) -> None:
        if isinstance(event, WriteRepeated):
            quota.take(event.bytes)

    return take
