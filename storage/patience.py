"""How long one request of a store is repeated: failures a few times, throttling for minutes.

A store that asks to slow down works: it is waited for, so that it slows a copy and never fails it. Back-off doubles,
with jitter; its waiting counts against ``throttle_timeout`` and not against ``request_timeout``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ..runtime.clock import Clock
from ..runtime.id_source import IdSource
from ..runtime.listener import Listener, StoreThrottled
from ..runtime.retry import BackOff
from ..state.errors import StorageUnavailable, Throttled

A = TypeVar("A")
_FAILED = BackOff(first=0.1, most=5.0)
_THROTTLED = BackOff(first=0.5, most=20.0)


class NotRepeatable(StorageUnavailable):
    """Sending the same request again cannot help: begin the whole write again."""


@dataclass(frozen=True, slots=True)
class Limits:
    """``max_attempts`` counts failures, not throttling. Times in seconds, of one request with its repeats."""

    max_attempts: int = 5
    request_timeout: float = 120
    throttle_timeout: float = 600


class Patience:
    """Of one store. Thread-safe."""

    def __init__(self, limits: Limits, clock: Clock, ids: IdSource, listener: Listener, store: str) -> None:
        self.limits, self.clock, self.ids, self.listener, self.store = limits, clock, ids, listener, store

    def attempts(self, key: str) -> Attempts:
        return Attempts(self, key)

    def call(self, key: str, act: Callable[[], A]) -> A:
        """What ``act`` answers, who must be safe to repeat. Raises its last error."""
        attempts = self.attempts(key)
        while True:
            try:
                return act()
            except (Throttled, StorageUnavailable) as error:
                attempts.failed(error)


class Attempts:
    """Of one request. One thread's."""

    def __init__(self, patience: Patience, key: str) -> None:
        self._patience, self._key = patience, key
        self.progressed()

    @property
    def deadline(self) -> float:
        """When, by the monotonic clock, the request has taken too long."""
        return self._began + self._patience.limits.request_timeout + self._throttled_for

    def progressed(self) -> None:
        """Something arrived: whatever fails from here on is a request of its own."""
        self._failures = self._throttles = 0
        self._throttled_for = 0.0
        self._began = self._patience.clock.monotonic()

    def failed(self, error: Throttled | StorageUnavailable) -> None:
        """Waits until the request may be repeated. Raises ``error`` when it may not."""
        patience, limits = self._patience, self._patience.limits
        if isinstance(error, NotRepeatable):
            raise error
        if isinstance(error, Throttled):
            self._throttles += 1
            delay = _THROTTLED.delay(self._throttles, patience.ids.jitter())
            if self._throttled_for + delay > limits.throttle_timeout:
                raise error
            self._throttled_for += delay
            patience.listener(StoreThrottled(patience.store, self._key, delay))
        else:
            self._failures += 1
            delay = _FAILED.delay(self._failures, patience.ids.jitter())
            if self._failures >= limits.max_attempts or patience.clock.monotonic() + delay > self.deadline:
                raise error
        patience.clock.sleep(delay)
