"""Backoff: the number of failures in a row, and whether it is too early to try again.

An operation that failed for lack of something (the store, a permission) is retried as soon as that is available again.
"""

from __future__ import annotations

from ..runtime.clock import Clock
from ..state.errors import TierstateError

MAX_BACKOFF_S = 300.0


def backoff(failures: int) -> float:
    """Return the seconds to wait after so many failures in a row: 1 s three times, then 5 s, doubled up to 5 min."""
    return 1.0 if failures <= 3 else min(MAX_BACKOFF_S, 5.0 * 2.0 ** min(failures - 4, 10))


class Backoff:
    """The failures in a row of one kind of operation."""

    __slots__ = ("_clock", "_error", "_not_before", "count")

    def __init__(self, clock: Clock) -> None:
        self._clock, self.count, self._not_before = clock, 0, 0.0
        self._error: TierstateError | None = None

    def add(self, error: TierstateError) -> None:
        self.count += 1
        self._not_before = self._clock.monotonic() + backoff(self.count)
        self._error = error

    def returned(self, kind: type[TierstateError]) -> None:
        """End the wait if the last error has this type, because the cause was removed. `count` stays the same."""
        if isinstance(self._error, kind):
            self._not_before = 0.0

    def clear(self) -> None:
        self.count, self._not_before = 0, 0.0

    @property
    def waiting(self) -> bool:
        return self.count > 0 and self._clock.monotonic() < self._not_before
