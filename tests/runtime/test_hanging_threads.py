"""A thread that is silent for too long is named; one that loops, waits its turn or ended is not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.scenarios.house import eventually
from tests.twins.manual_clock import ManualClock
from tierstate.runtime.quota import ByteQuota
from tierstate.runtime.service import Service
from tierstate.runtime.watchdog import Supervisor, Watchdog, alive, go_round, inherited, loop


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def watchdog(clock: ManualClock) -> Iterator[Watchdog]:
    """A watchdog of the test's own thread."""
    with Watchdog(
        clock, {"operations": 600, "chores": 60}, Supervisor({}), lambda event, **facts: None
    ) as opened_watchdog:
        yield opened_watchdog


def test_a_silent_thread_is_named_with_its_work_and_time_until_it_goes_on(
    clock: ManualClock, watchdog: Watchdog
) -> None:
    with loop("operations", "orders-3"):
        clock.advance(599)
        assert watchdog.hangs() == []
        clock.advance(1)
        assert [str(each) for each in watchdog.hangs()] == [
            "a thread hangs. loop=operations doing=orders-3 seconds=600"
        ]
        assert watchdog.hangs()[0].thread == threading.get_ident()
        alive()
        assert watchdog.hangs() == []


def test_each_loop_has_its_own_limit_and_the_longest_silence_comes_first(
    clock: ManualClock, watchdog: Watchdog
) -> None:
    with loop("operations"):
        clock.advance(530)
        with loop("chores"):
            clock.advance(69)
            assert [each.loop for each in watchdog.hangs()] == ["chores"]
            clock.advance(1)
            assert [(each.loop, each.seconds) for each in watchdog.hangs()] == [("operations", 600), ("chores", 70)]


def test_a_thread_that_ended_does_not_hang_also_when_it_ended_with_an_error(
    clock: ManualClock, watchdog: Watchdog
) -> None:
    def fail() -> None:
        with loop("chores"):
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError):
        fail()
    clock.advance(1_000)
    assert watchdog.hangs() == []


def test_a_thread_that_loops_is_named_only_once_an_iteration_never_ends(clock: ManualClock, watchdog: Watchdog) -> None:
    held, release, turns = threading.Event(), threading.Event(), list[int]()

    def turn() -> None:
        clock.advance(59)
        turns.append(len(watchdog.hangs()))
        if len(turns) == 3:
            held.set()
            release.wait(30)

    service = Service("chores", lambda stop: go_round("chores", stop, turn, lambda: 0.0))
    service.start()
    assert held.wait(10)
    assert turns == [0, 0, 0]
    clock.advance(1)
    assert [each.loop for each in watchdog.hangs()] == ["chores"]
    service.stop()
    release.set()
    assert service.join(10)
    assert watchdog.hangs() == []


def test_a_sign_of_life_counts_for_its_own_thread_and_no_other(clock: ManualClock, watchdog: Watchdog) -> None:
    with loop("chores"):
        clock.advance(60)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(inherited(alive)).result()
        assert len(watchdog.hangs()) == 1, "a thread that is in no loop says nothing about this one"
        alive()
        assert watchdog.hangs() == []
    alive()


def test_a_thread_has_the_watchdog_of_the_thread_that_made_its_work(clock: ManualClock, watchdog: Watchdog) -> None:
    held, release = threading.Event(), threading.Event()

    def hang() -> None:
        with loop("operations", "orders-3"):
            held.set()
            release.wait(30)

    def hand_on(stop: threading.Event) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(inherited(hang)).result()

    service = Service("agent", hand_on)
    service.start()
    assert held.wait(10)
    clock.advance(600)
    assert [each.doing for each in watchdog.hangs()] == ["orders-3"]
    release.set()
    eventually(lambda: watchdog.hangs() == [])
    assert service.join(10)


def test_a_watched_loop_without_a_limit_is_a_bug(watchdog: Watchdog) -> None:
    with pytest.raises(KeyError), loop("unheard of"):
        pass
    watchdog.__exit__()
    with loop("unheard of"):
        alive()
    assert watchdog.hangs() == []


def test_a_thread_that_waits_for_the_quota_does_not_hang(clock: ManualClock, watchdog: Watchdog) -> None:
    hangs: list[int] = []

    class Watching(ManualClock):
        """A clock whose sleep lets time pass; then the watchdog looks."""

        def sleep(self, seconds: float) -> None:
            clock.advance(seconds)
            hangs.append(len(watchdog.hangs()))

    quota = ByteQuota(Watching(), 1)
    with loop("chores"):
        quota.take(200)
    assert len(hangs) > 100
    assert set(hangs) == {0}
