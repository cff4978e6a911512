from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.twins.manual_clock import ManualClock
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.listener import StoreThrottled, WriteRepeated
from tierstate.runtime.quota import ByteQuota, repeats_taken_from
from tierstate.state.errors import Unavailable


def test_one_seconds_worth_goes_at_once_then_bytes_wait_for_their_rate() -> None:
    clock = ManualClock()
    quota = ByteQuota(clock, 100)
    assert [quota.take(100), quota.take(50), quota.take(100)] == [0, 0.5, 1.0]


def test_a_write_larger_than_the_bucket_goes_through_and_the_next_pays_for_it() -> None:
    clock = ManualClock()
    quota = ByteQuota(clock, 100)
    assert quota.take(1100) == 10
    assert quota.take(100) == 1


def test_idle_time_saves_up_no_more_than_one_second() -> None:
    clock = ManualClock()
    quota = ByteQuota(clock, 100)
    clock.advance(3600)
    assert [quota.take(100), quota.take(100)] == [0, 1]


def test_zero_is_no_limit() -> None:
    quota = ByteQuota(ManualClock(), 0)
    assert quota.take(2**60) == 0
    assert quota.try_take(2**60) == 0


def test_a_refused_caller_learns_when_to_come_back_and_took_nothing() -> None:
    clock = ManualClock()
    quota = ByteQuota(clock, 100)
    assert quota.try_take(300) == 0
    assert quota.try_take(1) == 2
    assert quota.try_take(1) == 2
    clock.advance(2.5)
    assert quota.try_take(1) == 0


@given(st.lists(st.tuples(st.integers(0, 500), st.floats(0, 5)), max_size=30))
def test_never_more_than_the_rate_and_one_burst(steps: list[tuple[int, float]]) -> None:
    clock = ManualClock()
    start = clock.monotonic()
    quota = ByteQuota(clock, 100)
    sent = 0
    for size, pause in steps:
        quota.take(size)
        sent += size
        assert sent <= 100 * (clock.monotonic() - start) + 100 + 0.1
        clock.advance(pause)


def test_seconds_waited_are_counted() -> None:
    quota = ByteQuota(ManualClock(), 100)
    quota.take(350), quota.take(100)
    assert quota.waited == pytest.approx(3.5)


class Busy(ManualClock):
    """A clock on which something happens during a sleep."""

    def __init__(self, happen: Callable[[], object]) -> None:
        super().__init__()
        self._happen = happen

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._happen()


def test_a_caller_that_waits_for_hours_is_woken_by_a_stop() -> None:
    clock = Busy(lambda: quota.stop())
    quota = ByteQuota(clock, 100)
    began = clock.monotonic()
    with pytest.raises(Unavailable, match="stopping"):
        quota.take(1_000_000)
    assert clock.monotonic() - began <= 1


@pytest.mark.parametrize("rate", [0, 100])
def test_no_caller_takes_after_a_stop_even_without_a_wait(rate: int) -> None:
    quota = ByteQuota(ManualClock(), rate)
    quota.stop()
    with pytest.raises(Unavailable, match="stopping"):
        quota.take(0)


def test_only_bytes_that_a_store_sends_again_are_taken_from_the_quota() -> None:
    quota = ByteQuota(ManualClock(), 100)
    listen = repeats_taken_from(quota)
    listen(StoreThrottled("s3:", "a", 500))
    assert quota.waited == 0
    listen(WriteRepeated("s3:", "a", 500))
    assert quota.waited == pytest.approx(4)


def test_threads_share_one_rate() -> None:
    clock, rate = SystemClock(), 1_000_000
    quota, went = ByteQuota(clock, rate), list[tuple[float, int]]()
    began = clock.monotonic()

    def take() -> None:
        for size in (150_000, 70_000, 250_000):
            quota.take(size)
            went.append((clock.monotonic(), size))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    total = 0
    for when, size in sorted(went):
        total += size
        assert total <= rate * (when - began) + rate
    assert total == 4 * 470_000
