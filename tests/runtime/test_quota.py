from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tierstate.runtime.clock import ManualClock
from tierstate.runtime.quota import ByteQuota


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


def test_a_refused_caller_is_told_when_to_come_back_and_took_nothing() -> None:
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
