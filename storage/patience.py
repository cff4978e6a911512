"""How long one request of a store is repeated: failures a few times, throttling for minutes.

A store that asks to slow down works. A write waits for it, so that it slows a copy and never fails it: this waiting
counts against ``throttle_timeout`` and not against ``request_timeout``. Somebody waits for a read, so there
``request_timeout`` is all the time there is; an abort clears up behind an upload that failed, and nothing waits long
for that. Back-off doubles, with jitter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ..runtime.clock import Clock
from ..runtime.id_source import IdSource
from ..runtime.listener import Listener, StoreThrottled, WriteRepeated
from ..runtime.retry import BackOff
from ..state.errors import StorageUnavailable, Throttled

A = TypeVar("A")
ABORT_SECONDS = 10.0
"""What an abort leaves is found by its age, and removed later."""
_STEP_SECONDS = 1.0
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


def never() -> bool:
    """A write that nobody gives up."""
    return False


class Patience:
    """Of one store. Thread-safe.

    `write`, `read` and `abort` answer what ``act`` answers, who must be safe to repeat, and raise its last error.
    No request begins after its time is over; one that is on its way then has the client's own time-outs.
    """

    def __init__(self, limits: Limits, clock: Clock, ids: IdSource, listener: Listener, store: str) -> None:
        self.limits, self.clock, self.ids, self.listener, self.store = limits, clock, ids, listener, store

    def write(self, key: str, act: Callable[[], A], given_up: Callable[[], bool] = never, size: int = 0) -> A:
        """``given_up`` is asked about once a second: True when nobody wants the write any more.

        ``size``: bytes of its body. The listener is told before they are sent again, and may hold them back.
        """
        attempts = Attempts(self, key, None, given_up)
        return _repeated(attempts, act, lambda: self._tell_repeated(key, size))

    def read(self, key: str, act: Callable[[], A]) -> A:
        return _repeated(self.reading(key), act)

    def abort(self, key: str, act: Callable[[], A]) -> A:
        return _repeated(Attempts(self, key, min(ABORT_SECONDS, self.limits.request_timeout)), act)

    def reading(self, key: str) -> Attempts:
        """For a read that comes in pieces and tells its progress."""
        return Attempts(self, key, self.limits.request_timeout)

    def _tell_repeated(self, key: str, size: int) -> None:
        if size:
            self.listener(WriteRepeated(self.store, key, size))


class Attempts:
    """Of one request. One thread's. ``within``: seconds for all of it; None: as long as a write may take."""

    def __init__(
        self, patience: Patience, key: str, within: float | None, given_up: Callable[[], bool] = never
    ) -> None:
        self._patience, self._key, self._within, self._given_up = patience, key, within, given_up
        self.progressed()

    def progressed(self) -> None:
        """Something arrived: whatever fails from here on is a request of its own."""
        self._failures = self._throttles = 0
        self._throttled_for = 0.0
        self._began = self._patience.clock.monotonic()

    def failed(self, error: Throttled | StorageUnavailable) -> None:
        """Waits until the request may be repeated. Raises ``error`` when it may not."""
        if isinstance(error, NotRepeatable):
            raise error
        patience, limits = self._patience, self._patience.limits
        took = patience.clock.monotonic() - self._began
        if isinstance(error, Throttled):
            self._throttles += 1
            delay = _THROTTLED.delay(self._throttles, patience.ids.jitter())
            self._throttled_for += delay
            too_long = self._throttled_for > limits.throttle_timeout
            too_long |= self._within is not None and took + delay > self._within
        else:
            self._failures += 1
            delay = _FAILED.delay(self._failures, patience.ids.jitter())
            most = limits.request_timeout + self._throttled_for if self._within is None else self._within
            too_long = self._failures >= limits.max_attempts or took + delay > most
        if too_long:
            raise error
        if isinstance(error, Throttled):
            patience.listener(StoreThrottled(patience.store, self._key, delay))
        self._wait(delay, error)

    def _wait(self, seconds: float, error: Throttled | StorageUnavailable) -> None:
        """In steps, so that who gave up need not wait for who waits."""
        while not self._given_up():
            if seconds <= 0:
                return
            self._patience.clock.sleep(min(seconds, _STEP_SECONDS))
            seconds -= _STEP_SECONDS
        raise error


def _repeated(attempts: Attempts, act: Callable[[], A], before_repeat: Callable[[], object] = lambda: None) -> A:
    while True:
        try:
            return act()
        except (Throttled, StorageUnavailable) as error:
            attempts.failed(error)
        before_repeat()
