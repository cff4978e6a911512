"""Any history of exports into one place: killed, given up, expired, next to runs that may be dead.

In the end no record is in the folder twice, every record of the log is there, and the check has no findings.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.fetch.two_tiers import Golden
from tests.lake.exports import Killed, World, digest_of
from tests.lake.test_export import log_digest
from tests.tiers import few
from tierstate.lake.export import Wanted
from tierstate.lake.export_check import check
from tierstate.lake.export_task import export_task
from tierstate.runtime.operation import Operation, run
from tierstate.state.errors import InvalidRequest, OffsetOutOfRange

Make = Callable[..., Golden]
TURNS = 30


class History:
    """``late``: runs of tasks and of giving up that have stopped somewhere, and may go on at any time, or never."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.random = world, random.Random(seed)
        self.late: list[Operation[Any]] = []
        self.start = 0
        self.said: list[str] = []

    def turn(self) -> None:
        acts = [self.export, self.export, self.give_up, self.begin, self.begin, self.go_on, self.go_on, self.expire]
        act = self.random.choice(acts)
        self.said.append(act.__name__)
        act()

    def wanted(self) -> Wanted:
        """Return a range that the log has."""
        first = self.random.randrange(self.start, self.world.end)
        return self.world.wanted(first, self.random.randrange(first, self.world.end) + 1)

    def export(self) -> None:
        """Export, and be killed somewhere as often as not."""
        self.world.dies_at = self.random.choice([None, self.random.randrange(9)])
        try:
            self.world.export().do(self.wanted())
        except (Killed, InvalidRequest, OffsetOutOfRange) as error:
            self.said.append(f"- {type(error).__name__}")
        self.world.dies_at = None

    def give_up(self) -> None:
        """Give up open plans, and stop somewhere as often as not."""
        for plan in self.world.ledger.open_plans():
            act = self.world.ledger.give_up(plan)
            if all(next(act, None) for _ in range(self.random.choice([99, self.random.randrange(6)]))):
                self.late.append(act)

    def begin(self) -> None:
        """Begin a task that is not done, as a run of another process."""
        for plan in self.world.ledger.plans():
            done = self.world.ledger.done(plan)
            left = [task for task in plan.tasks if task.number not in done and task.start >= self.start]
            if left and not self.world.ledger.is_given_up(plan):
                task = self.random.choice(left)
                [job] = self.world.export().jobs(plan, [task])
                act = export_task(plan, task, self.world.batches(job), self.world.ledger)
                for _ in range(self.random.randrange(1, 3)):
                    next(act)
                self.late.append(act)

    def go_on(self) -> None:
        if self.late:
            act = self.late.pop(self.random.randrange(len(self.late)))
            try:
                run(act)
            except InvalidRequest as error:
                self.said.append(f"- {error.message}")

    def expire(self) -> None:
        self.start = self.random.randrange(self.start, self.world.end // 2 + 1) if self.start < 900 else self.start
        self.world.golden.tiers.start_log_at(self.start)
        self.world.golden.tiers.view.require_fresh(0, 0)

    def end(self) -> None:
        """End all runs: they are dead; then give up the open plans, and export what the log has."""
        self.late.clear()
        for plan in self.world.ledger.open_plans():
            run(self.world.ledger.give_up(plan))
        self.world.export().do(self.world.wanted(self.start))


@pytest.mark.parametrize("seed", few(range(20), range(0, 20, 5)))
def test_each_record_is_in_the_folder_once_after_any_history(golden_log: Make, seed: int) -> None:
    golden = golden_log("transactions")
    golden.local.local_start = golden.folder.bases[-1] - 3
    world = World(golden)
    whole = log_digest(world)
    history = History(world, seed)
    for _ in range(TURNS):
        history.turn()
    history.end()
    rows = pa.concat_tables(world.tables()).sort_by("offset")
    offsets = rows["offset"].to_pylist()
    assert len(offsets) == len(set(offsets)), history.said
    there = rows.filter(pa.compute.greater_equal(rows["offset"], history.start))
    assert digest_of(there) == (log_digest(world, history.start) if history.start else whole), history.said
    assert check(world.export()).findings == [], history.said
