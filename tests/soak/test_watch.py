"""The rules for unbounded growth of processes, and for the speed at which their memory grows."""

from __future__ import annotations

import os

from tests.soak.watch import MIB, Figures, at_share, growth, look, slope_mib_an_hour


def life(fds: list[int], threads: int = 30, every_s: float = 10.0) -> list[Figures]:
    return [Figures(at * every_s, 0, 7, (100 + at) * MIB, threads, each) for at, each in enumerate(fds)]


def test_files_that_come_and_go_are_no_growth() -> None:
    assert growth(life([60 + at % 5 * 10 for at in range(60)])) == []
    assert growth(life([20, 40, 80, 90, 90, 90, 90, 91] * 2)) == []


def test_files_that_only_come_are() -> None:
    assert growth(life([60 + 2 * at for at in range(60)])) == ["agent 0 (pid 7): fds grew from 104 to 164"]
    assert growth(life([60] * 40 + [1_001])) == ["agent 0 (pid 7) had 1001 fds"]
    assert growth(life([60] * 9, threads=201)) == ["agent 0 (pid 7) had 201 threads"]


def test_a_short_life_says_nothing_of_growth() -> None:
    assert growth(life([60 + 20 * at for at in range(10)])) == []


def test_memory_is_told_by_share_and_by_hour() -> None:
    seen = life([60] * 101)
    assert [figures.rss // MIB for share in (0.1, 0.5, 1) if (figures := at_share(seen, share))] == [110, 150, 200]
    slope = slope_mib_an_hour(seen)
    assert slope is not None
    assert round(slope) == 360
    assert slope_mib_an_hour(seen[:3]) is None


def test_a_process_that_is_gone_has_no_figures() -> None:
    here = look(os.getpid(), 0, 0)
    assert here is not None
    assert min(here.rss, here.threads, here.fds) > 0
    assert look(2**22 + 1, 0, 0) is None
