from __future__ import annotations

import pytest

from tierstate.runtime.clock import ManualClock
from tierstate.runtime.id_source import CountingIds
from tierstate.runtime.retry import Retry, RetryDelays
from tierstate.state.errors import AccessDenied, StorageUnavailable, TierstateError, UnknownOutcome


class Flaky:
    """A call that fails ``failures`` times, then answers; it remembers when it was called."""

    def __init__(self, clock: ManualClock, failures: int, error: TierstateError) -> None:
        self.called_at: list[float] = []
        self._clock = clock
        self._start = clock.monotonic()
        self._failures = failures
        self._error = error

    def __call__(self) -> str:
        self.called_at.append(round(self._clock.monotonic() - self._start, 6))
        if len(self.called_at) <= self._failures:
            raise self._error
        return "done"


def test_waits_grow_and_jitter_takes_up_to_half_of_them_away() -> None:
    back_off = RetryDelays(first=0.1, factor=2, most=1)
    assert [back_off.delay(failures, 0) for failures in (1, 2, 3, 4, 5, 100_000)] == [0.1, 0.2, 0.4, 0.8, 1, 1]
    assert back_off.delay(5, 0.5) == 0.75


def test_a_transient_error_is_repeated_until_it_works() -> None:
    clock = ManualClock()
    act = Flaky(clock, 3, StorageUnavailable("away"))
    retry = Retry(clock, CountingIds(), 60, RetryDelays(first=1, factor=2, most=10))
    assert retry.call(act) == "done"
    assert act.called_at == [0, 0.75, 2.25, 5.25]  # 1, 2, 4 seconds, less a quarter by CountingIds' jitter


def test_after_the_deadline_the_last_error_is_raised_without_sleeping_past_it() -> None:
    clock = ManualClock()
    act = Flaky(clock, 99, StorageUnavailable("away"))
    with pytest.raises(StorageUnavailable):
        Retry(clock, CountingIds(), 3, RetryDelays(first=1, factor=2, most=10)).call(act)
    assert act.called_at == [0, 0.75, 2.25]


@pytest.mark.parametrize("error", [UnknownOutcome("?"), AccessDenied("no")])
def test_an_error_that_is_not_transient_is_raised_at_once(error: TierstateError) -> None:
    clock = ManualClock()
    act = Flaky(clock, 99, error)
    with pytest.raises(type(error)):
        Retry(clock, CountingIds(), 60).call(act)
    assert len(act.called_at) == 1
