"""A thread that is silent for longer than it may is named; one that goes round, waits its turn or ended is not."""

from __future__ import annotations

import threading

import pytest

from tierstate.runtime.clock import ManualClock
from tierstate.runtime.heartbeat import UNWATCHED, Heartbeats
from tierstate.runtime.quota import ByteQuota


def watched() -> tuple[ManualClock, Heartbeats]:
    clock = ManualClock()
    return clock, Heartbeats(clock, {"acts": 600, "keeper": 60})


def test_a_silent_thread_is_named_with_what_it_is_at_and_for_how_long_and_no_more_once_it_goes_on() -> None:
    clock, heartbeats = watched()
    with heartbeats.of("acts", "orders-3") as heart:
        clock.advance(599)
        assert heartbeats.hangs() == []
        clock.advance(1)
        assert [str(each) for each in heartbeats.hangs()] == ["a thread hangs. loop=acts doing=orders-3 seconds=600"]
        assert heartbeats.hangs()[0].thread == threading.get_ident()
        heart.beat()
        assert heartbeats.hangs() == []


def test_each_loop_has_its_own_limit_and_the_longest_silence_comes_first() -> None:
    clock, heartbeats = watched()
    with heartbeats.of("acts"):
        clock.advance(530)
        with heartbeats.of("keeper"):
            clock.advance(69)
            assert [each.loop for each in heartbeats.hangs()] == ["keeper"]
            clock.advance(1)
            assert [(each.loop, each.seconds) for each in heartbeats.hangs()] == [("acts", 600), ("keeper", 70)]


def test_a_thread_that_ended_does_not_hang_also_when_it_ended_with_an_error() -> None:
    clock, heartbeats = watched()

    def fail() -> None:
        with heartbeats.of("keeper"):
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError):
        fail()
    clock.advance(1_000)
    assert heartbeats.hangs() == []


def test_who_rests_between_two_turns_does_not_hang_however_long_and_begins_the_next_one_afresh() -> None:
    clock, heartbeats = watched()
    stop = threading.Event()
    hangs: list[int] = []

    class Passing(threading.Event):
        """Time passes while it is waited for; then somebody looks."""

        def wait(self, timeout: float | None = None) -> bool:
            clock.advance(10_000)
            hangs.append(len(heartbeats.hangs()))
            hangs.append(round(heartbeats.silent_s()["keeper"]))
            return False

    with heartbeats.of("keeper") as heart:
        heart.rest(Passing(), 5)
        clock.advance(59)
        assert heartbeats.hangs() == []
        stop.set()
        heart.rest(stop, 60)
    assert hangs == [0, 0]


def test_what_takes_long_within_a_turn_goes_on_for_its_own_thread_and_no_other() -> None:
    clock, heartbeats = watched()
    with heartbeats.of("keeper"):
        clock.advance(59)
        other = threading.Thread(target=heartbeats.alive)
        other.start()
        other.join()
        clock.advance(1)
        assert len(heartbeats.hangs()) == 1, "a thread that has no loop says nothing about this one"
        heartbeats.alive()
        assert heartbeats.hangs() == []
    heartbeats.alive()


def test_the_silence_of_a_loop_is_that_of_its_most_silent_thread_and_zero_where_none_is_at_work() -> None:
    clock, heartbeats = watched()
    with heartbeats.of("acts"):
        clock.advance(7)
        with heartbeats.of("acts"):
            assert heartbeats.silent_s() == {"acts": 7, "keeper": 0}
    assert heartbeats.silent_s() == {"acts": 0, "keeper": 0}


def test_a_loop_that_nobody_gave_a_limit_is_a_bug_but_where_nobody_watches() -> None:
    with pytest.raises(KeyError):
        watched()[1].of("unheard of")
    with UNWATCHED.of("unheard of"):
        assert UNWATCHED.hangs() == []


def test_who_waits_for_the_quota_does_not_hang_however_long() -> None:
    clock, heartbeats = watched()
    hangs: list[int] = []

    class Watching(ManualClock):
        """Time passes while it sleeps; then somebody looks."""

        def sleep(self, seconds: float) -> None:
            clock.advance(seconds)
            hangs.append(len(heartbeats.hangs()))

    quota = ByteQuota(Watching(), 1, heartbeats.alive)
    with heartbeats.of("keeper"):
        quota.take(200)
    assert len(hangs) > 100
    assert set(hangs) == {0}
