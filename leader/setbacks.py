"""Back-off: how often something failed in a row, and whether it is too early to try again.

What failed because the store did not answer is tried again as soon as it does.
"""

from __future__ import annotations

from ..runtime.clock import Clock
from ..state.errors import StorageUnavailable, TierstateError

MAX_BACKOFF_S = 300.0


def backoff(setbacks: int) -> float:
    """Seconds to wait after so many setbacks in a row: 1 s three times, then 5 s, doubled up to 5 min."""
    return 1.0 if setbacks <= 3 else min(MAX_BACKOFF_S, 5.0 * 2.0 ** min(setbacks - 4, 10))


class Setbacks:
    """Of one kind of act."""

    __slots__ = ("_clock", "_not_before", "_of_store", "count")

    def __init__(self, clock: Clock) -> None:
        self._clock, self.count, self._not_before, self._of_store = clock, 0, 0.0, False

    def add(self, error: TierstateError) -> None:
        self.count += 1
        self._not_before = self._clock.monotonic() + backoff(self.count)
        self._of_store = isinstance(error, StorageUnavailable)

    def store_returned(self) -> None:
        """Not forgotten: should it fail again, the wait is the longer one."""
        if self._of_store:
            self._not_before = 0.0

    def clear(self) -> None:
        self.count, self._not_before = 0, 0.0

    @property
    def waiting(self) -> bool:
        return self.count > 0 and self._clock.monotonic() < self._not_before
