"""A follower that gets SIGKILL in the middle of a step: nothing is lost, nothing is there twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fetch.two_tiers import Golden
from tests.lake.tables import TableWorld
from tierstate.lake.table_follow import Step, TableLimits
from tierstate.runtime.operation import run

Make = Callable[..., Golden]
LIMITS = TableLimits(file_bytes=30_000, commit_bytes=60_000)


def follow_until_killed(world: TableWorld, tells: int) -> None:
    """Follow the table; write a byte to ``tells`` before each step."""
    while True:
        act = world.round()
        while True:
            try:
                next(act)
            except StopIteration as done:
                if done.value.step is Step.NOTHING:
                    return
                break
            os.write(tells, b".")


def killed_at(world: TableWorld, step: int) -> bool:
    """Run a follower that is killed as its ``step``-th step begins. Returns False if it had come to its end before."""
    hears, tells = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(hears)
            follow_until_killed(world, tells)
        finally:
            os._exit(0)
    os.close(tells)
    with os.fdopen(hears, "rb", buffering=0) as steps:
        for _ in range(step):
            if not steps.read(1):
                break
        os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.extended
def test_killed_in_the_middle_of_any_step_the_table_is_its_log(golden_log: Make, tmp_path: Path) -> None:
    golden = golden_log("transactions")
    killed = 0
    for step in range(1, 10):  # two commits, and a bit of the third
        world = TableWorld(golden, tmp_path / str(step), limits=LIMITS)
        killed += killed_at(world, step)
        world.follow()
        assert world.table_digest() == world.log_digest(), f"killed in step {step}"
    assert killed > 5


def test_killed_again_and_again_the_table_gets_there(golden_log: Make, tmp_path: Path) -> None:
    world = TableWorld(golden_log("transactions"), tmp_path, limits=LIMITS)
    rounds = 0
    while killed_at(world, 8):  # files of two days, manifests, the commit, and into the next one
        rounds += 1
        assert rounds < 30
    assert run(world.round()).step is Step.NOTHING
    assert world.table_digest() == world.log_digest()
