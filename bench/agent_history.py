"""CPU that one more segment of a partition takes, by the number of segments that the partition has already.

The production worker of one partition, over a folder as Kafka writes it, with segments of 10 KB. The tier-state topic,
the broker and the object store are the in-memory twins of the tests, and their CPU is counted too. *Backlog*: so many
rolled segments wait on the broker's disk. *History*: so many segments were copied and trimmed before; each further one
is copied and trimmed as it rolls. The clock is set forward by 250 ms for each segment, so that trims interrupt a
backlog as often as they do in production. One run; the peer is the smallest size.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.leader.long_log import LongLog
from tests.leader.world import TRIMS_ALL, Process, World
from tierstate.leader.partition_worker import PartitionWorker
from tierstate.runtime.listener import SegmentCopied

from .rows import Row

SIZES = (200, 2_000, 20_000)
QUICK_SIZES = (20, 40)
WARM_UP, MEASURED = 10, 100
QUICK_MEASURED = 10
A_SEGMENT_S = 0.25


def measure(quick: bool = False) -> list[Row]:
    """About 3 minutes and 400 MB of disk."""
    sizes, measured = (QUICK_SIZES, QUICK_MEASURED) if quick else (SIZES, MEASURED)
    rows: list[Row] = []
    for what, ready in (("backlog", _backlog), ("history", _history)):
        least: float | None = None
        for segments in sizes:
            figure = _cpu_ms(segments, measured, ready)
            rows.append(
                Row(f"{what} of {segments:,} segments, CPU a segment", figure, "ms", least, f"{sizes[0]:,} segments")
            )
            least = least or figure
    return rows


def _backlog(log: LongLog, process: Process, segments: int) -> tuple[PartitionWorker, Callable[[], object]]:
    log.grow(segments + WARM_UP + MEASURED)
    return process.worker(), log.world.retire


def _history(log: LongLog, process: Process, segments: int) -> tuple[PartitionWorker, Callable[[], object]]:
    worker = process.work()
    log.world.retire()
    log.remember(segments)

    def roll() -> None:
        log.world.retire()
        log.grow()

    return worker, roll


def _cpu_ms(
    segments: int,
    measured: int,
    ready: Callable[[LongLog, Process, int], tuple[PartitionWorker, Callable[[], object]]],
) -> float:
    """Return milliseconds a segment, of all threads of this process."""
    with tempfile.TemporaryDirectory(prefix="tierstate-bench-") as folder:
        world = World(Path(folder), "none", TRIMS_ALL)
        process = world.process()
        try:
            worker, between = ready(LongLog(world), process, segments)
            copied = spent = 0.0
            while copied < WARM_UP + measured:
                between()
                world.clock.sleep(A_SEGMENT_S)
                process.events.clear()
                began = time.process_time()
                _until_copied(worker, process)
                if copied >= WARM_UP:
                    spent += time.process_time() - began
                copied += 1
        finally:
            world.close()
    return 1000 * spent / measured


def _until_copied(worker: PartitionWorker, process: Process) -> None:
    """Copy one more segment, and do what else is due before the next one is begun."""
    while worker.advance():
        if worker.behind > 1 and any(isinstance(event, SegmentCopied) for event in process.events):
            return
    if not any(isinstance(event, SegmentCopied) for event in process.events):
        raise SystemExit(f"nothing was copied: {worker.last_error}")
