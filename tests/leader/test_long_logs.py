"""One more segment takes as many steps, however many wait on the broker's disk and however many are in the remote tier.

Executed lines of tierstate are counted, so that a walk over all segments shows wherever it is; time is not.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import tierstate
from tests.leader.long_log import RECORDS, LongLog
from tests.leader.world import TRIMS_ALL, World
from tierstate.log.partition import SETTLED_S

NewWorld = Callable[..., World]
FEW, MANY = 50, 500
NO_WALK = (MANY - FEW) // 2
"""More lines than the difference by binary searches and waits for the view's thread; fewer than any walk adds."""
TRIES = 8
"""The least of so many counts is compared: waits for the view's thread add a few hundred lines on a busy machine."""
A_DECADE_S = 315_360_000.0
OURS = str(Path(tierstate.__file__).parent)


def lines_of(work: Callable[[], object]) -> int:
    """Return how many lines of tierstate this thread runs."""
    lines = 0

    def line(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return line

    def called(frame: FrameType, event: str, argument: object) -> Any:
        return line if frame.f_code.co_filename.startswith(OURS) else None

    before = sys.gettrace()
    sys.settrace(called)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


def of_one_more_in_a_backlog(world: World, segments: int) -> int:
    LongLog(world).grow(segments)
    process = world.process()
    worker = process.worker()
    for _ in range(3):
        worker.advance()
        time.sleep(2 * SETTLED_S)  # the folder was changed just now: it is listed again
    copied = len(world.view().readable)
    lines = lines_of(worker.advance)
    assert len(world.view().readable) == copied + 1
    assert (process.status().copy_lag_segments or 0) > segments
    return lines


def of_one_more_in_a_history(world: World, segments: int) -> int:
    log, process = LongLog(world), world.process()
    worker = process.work()
    log.remember(segments)
    lines = []
    for _ in range(TRIES):
        world.retire()
        log.grow()
        lines.append(lines_of(lambda: process.work(worker)))
    assert len(world.view().readable) > segments
    assert world.local_start() == log.active
    return min(lines)


@pytest.mark.parametrize("of_one_more", [of_one_more_in_a_backlog, of_one_more_in_a_history])
@pytest.mark.parametrize("config", [TRIMS_ALL, {"local.retention.ms": "1"}, {}], ids=["size", "time", "kept"])
def test_one_more_segment_takes_as_many_steps_as_ever(
    new_world: NewWorld, of_one_more: Callable[[World, int], int], config: dict[str, str]
) -> None:
    if of_one_more is of_one_more_in_a_history and not config:
        pytest.skip("what is kept on the disk is a backlog")
    worlds = [new_world("none", config) for _ in (FEW, MANY)]
    for each in worlds:
        each.clock.sleep(A_DECADE_S)  # the records are old enough: local retention by time deletes them
    few, many = (of_one_more(each, segments) for each, segments in zip(worlds, (FEW, MANY), strict=True))
    assert abs(many - few) < NO_WALK, (few, many)


def test_a_folder_that_did_not_change_is_not_listed_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    log, listed, listdir = LongLog(world), list[str](), os.listdir

    def noted(path: str) -> list[str]:
        listed.append(path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", noted)
    for _ in range(3):
        before = world.log.snapshot(world.partition, world.name)
        time.sleep(2 * SETTLED_S)
    listed.clear()
    assert world.log.snapshot(world.partition, world.name) == before
    assert not listed
    log.grow()
    after = world.log.snapshot(world.partition, world.name)
    assert listed
    assert after.segments[-1].base_offset == before.segments[-1].base_offset + RECORDS


def test_a_segment_that_was_cut_and_rolled_again_is_read_again(world: World) -> None:
    """A new leader cut the log inside a rolled segment, and wrote and rolled it again: the same bases, other bytes."""
    base = world.rolled[-1]
    before = world.log.snapshot(world.partition, world.name)
    with world.file(base).open("ab") as file:
        file.write(b"more")
    world.elect_here()
    after = world.log.snapshot(world.partition, world.name)
    assert after.segments[-2].size_bytes == before.segments[-2].size_bytes + 4
