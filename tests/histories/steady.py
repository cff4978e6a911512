"""The end of a history: all is well, and the agents copy every segment that the leader has and that can be copied."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from tierstate.rules.decide import OperationKind
from tierstate.rules.reasons import Reason

if TYPE_CHECKING:
    from tests.histories.process import Process
    from tests.histories.world import World

SETTLED, IDLE = 600, 5
"""Steps in which the agents have to finish once all is well, and looks in a row that find nothing to do."""
STUCK = (Reason.NO_EPOCH, Reason.NO_LOCAL_SEGMENT, Reason.CORRUPT_DATA, Reason.FENCED, Reason.FAILED)


class Steady(Random):
    """A random generator with which nothing misbehaves."""

    def random(self) -> float:
        return 0.39

    def randint(self, a: int, b: int) -> int:
        return b

    def randrange(self, *bounds: Any) -> int:
        return int(bounds[0]) if len(bounds) > 1 else 0

    def choice(self, seq: Any) -> Any:
        return seq[0]


def finish(world: World) -> None:
    """Let the agents work until they have nothing to do. Raises AssertionError if something cannot be copied."""
    world.rnd = world.topic.rnd = world.cluster.rnd = Steady()
    world.frozen.clear()
    world.bit_rot.end()
    world.now, idle = world.now + 1, 0
    for _ in range(SETTLED):
        process = world.attend()
        process.step()
        works = process.busy or _fails(process) or not process.worker.status.leads
        idle = 0 if works else idle + 1
        if idle > IDLE:
            break
        if not process.busy:
            world.clock.advance(10)
    world.promises.check()
    if world.later_release.binds:  # a fact that only a later release can read: no term begins, and people upgrade
        return
    status = process.worker.status
    reason = status.not_copied_reason
    assert status.leads, "STUCK: no agent works for the partition"
    assert not _fails(process), f"STUCK: {status.last_error}"
    assert reason not in STUCK, f"STUCK: {status.not_copied}"
    world.seen[f"finished: {reason}"] += 1


def _fails(process: Process) -> int:
    """Return how often in a row the process failed to copy or to begin a term. A removal may wait for the archive."""
    return process.worker._general.count + process.worker._by_kind[OperationKind.COPY].count
