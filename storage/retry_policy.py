"""The retry policy for requests to a store: failed requests are repeated a few times, throttled ones for minutes.

A store that asks to slow down still works. Throttling should slow a copy, not fail it, so a throttled write waits for
up to ``throttle_timeout``. This waiting does not count against ``request_timeout``. A client waits for each read, so
``request_timeout`` bounds all attempts of a read. An abort, which cleans up after a failed upload, is given up after
`ABORT_SECONDS`. The backoff doubles, with jitter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ..runtime.clock import Clock
from ..runtime.id_source import IdSource
from ..runtime.listener import Event, Listener, RequestRepeated, StoreThrottled, WriteRepeated
from ..state.errors import StorageUnavailable, Throttled

A = TypeVar("A")
ABORT_SECONDS = 10.0
"""Time limit in seconds for all attempts of one abort. An upload that remains is found by its age and removed later."""
_STEP_SECONDS = 1.0
_FAILED, _THROTTLED = (0.1, 5.0), (0.5, 20.0)
"""The first and the longest delay between two attempts, in seconds."""


def delay_s(first: float, most: float, failures: int, jitter: float) -> float:
    """Return the delay after ``failures`` >= 1: ``first``, then doubled each time, at most ``most``.

    ``jitter`` in [0, 1) removes up to half of it.
    """
    # The limit of 64 avoids an OverflowError: 2.0 ** 5000 would raise it after a day of failures.
    return min(most, first * 2.0 ** min(failures - 1, 64)) * (1 - jitter / 2)


class NotRepeatable(StorageUnavailable):
    """The error of a request that would fail again. The caller must start the whole write again."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one request with its repeats, in seconds. ``max_attempts`` counts failed, not throttled attempts."""

    max_attempts: int = 5
    request_timeout: float = 120
    throttle_timeout: float = 600


def never() -> bool:
    """Return False: the write is never given up."""
    return False


class RetryPolicy:
    """Repeats requests to one store. Thread-safe.

    `write`, `read` and `abort` return the result of ``act``, or raise its last error. ``act`` must be safe to repeat.
    No attempt begins after the time limit. An attempt in flight at that time ends by the client's own time-outs.
    """

    def __init__(self, limits: Limits, clock: Clock, ids: IdSource, listener: Listener, store: str) -> None:
        self.limits, self.clock, self.ids, self.listener, self.store = limits, clock, ids, listener, store

    def write(self, key: str, act: Callable[[], A], given_up: Callable[[], bool] = never, size: int = 0) -> A:
        """Repeat a write. While it waits, ``given_up`` is called about once a second; True ends the write.

        ``size`` is the body's length in bytes. The listener is notified before the body is sent again, and may wait.
        """
        attempts = Attempts(self, key, None, given_up)
        return _repeated(attempts, act, WriteRepeated(self.store, key, size) if size else None)

    def read(self, key: str, act: Callable[[], A]) -> A:
        return _repeated(self.reading(key), act)

    def abort(self, key: str, act: Callable[[], A]) -> A:
        return _repeated(Attempts(self, key, min(ABORT_SECONDS, self.limits.request_timeout)), act)

    def reading(self, key: str) -> Attempts:
        """Return the attempts of a read that arrives in pieces and reports its progress."""
        return Attempts(self, key, self.limits.request_timeout)


class Attempts:
    """The attempts of one request, on one thread. ``within``: seconds for all attempts; None: the limits of a write."""

    def __init__(
        self, policy: RetryPolicy, key: str, within: float | None, given_up: Callable[[], bool] = never
    ) -> None:
        self.policy, self._key, self._within, self._given_up = policy, key, within, given_up
        self.progressed()

    def progressed(self) -> None:
        """Record that bytes arrived. Later failures count as failures of a new request."""
        self._failures = self._throttles = 0
        self._throttled_for = 0.0
        self._began = self.policy.clock.monotonic()

    def failed(self, error: Throttled | StorageUnavailable) -> None:
        """Wait for the backoff; then the caller repeats the request. Raises ``error`` if the limits are reached."""
        if isinstance(error, NotRepeatable):
            raise error
        policy, limits = self.policy, self.policy.limits
        elapsed = policy.clock.monotonic() - self._began
        if isinstance(error, Throttled):
            self._throttles += 1
            delay = delay_s(*_THROTTLED, self._throttles, policy.ids.jitter())
            self._throttled_for += delay
            too_long = self._throttled_for > limits.throttle_timeout
            too_long |= self._within is not None and elapsed + delay > self._within
            event: Event = StoreThrottled(policy.store, self._key, delay)
        else:
            self._failures += 1
            delay = delay_s(*_FAILED, self._failures, policy.ids.jitter())
            most = limits.request_timeout + self._throttled_for if self._within is None else self._within
            too_long = self._failures >= limits.max_attempts or elapsed + delay > most
            event = RequestRepeated(policy.store, self._key, delay, str(error))
        if too_long:
            raise error
        policy.listener(event)
        self._wait(delay, error)

    def _wait(self, seconds: float, error: Throttled | StorageUnavailable) -> None:
        """Sleep in short steps. Raises ``error`` soon after the write was given up."""
        while not self._given_up():
            if seconds <= 0:
                return
            self.policy.clock.sleep(min(seconds, _STEP_SECONDS))
            seconds -= _STEP_SECONDS
        raise error


def _repeated(attempts: Attempts, act: Callable[[], A], repeat: WriteRepeated | None = None) -> A:
    while True:
        try:
            return act()
        except (Throttled, StorageUnavailable) as error:
            attempts.failed(error)
        if repeat is not None:
            attempts.policy.listener(repeat)
