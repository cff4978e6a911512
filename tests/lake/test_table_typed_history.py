"""Whatever happens to a typed topic and to the followers of its table: at the end every record is a row, once.

Histories are drawn from seeds: records come, writers' schemas grow, the log is cut below and loses branches, followers
append, evolve, compact and take out, two of them at once or one while much happens, and die before any step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.lake.typed_tables import COUNT, Make, TypedWorld, avro_world, columns_of, json_world
from tests.lake.typed_topics import DDL
from tests.operations import run_until
from tests.tiers import few
from tierstate.lake.jobs import MOVED
from tierstate.lake.table import Change
from tierstate.lake.table_commit import commit
from tierstate.lake.table_files import Attempt
from tierstate.lake.table_follow import TableLimits
from tierstate.lake.table_upkeep import bins, compact_bins
from tierstate.runtime.operation import Operation, run
from tierstate.state.epochs import EpochEntry, LeaderEpoch, Lineage
from tierstate.state.offsets import Offset

LIMITS = TableLimits(file_bytes=1_500, commit_bytes=6_000)
MOST_STEPS = 14
"""About the most steps of an operation in such a world."""
ELECTIONS = 5
"""Unclean elections of a history: fewer than the leader epochs that a table knows."""


class History:
    """``said`` keeps the events so far, for the message of a failure."""

    def __init__(self, world: TypedWorld, random: Random) -> None:
        self.world, self.random = world, random
        self.said: list[str] = []
        self._epochs = list(world.golden.folder.lineage().entries)
        self._elections = 0
        self._slow: list[Operation[Any]] = []

    def take(self, turns: int) -> None:
        self.world.produce(self.random.randrange(1, COUNT // 4))
        for _ in range(turns):
            [happen] = self.random.choices(
                (
                    self.records_come,
                    self.one_acts,
                    self.one_dies,
                    self.two_act,
                    self.one_is_slow,
                    self.the_log_is_cut,
                    self.a_branch_is_lost,
                ),
                (4, 6, 2, 2, 6, 1, 2),
            )
            self.said.append(happen.__name__)
            happen()

    def end(self) -> None:
        while self._slow:
            self._goes_on(0)
        self.world.follow_to(COUNT)
        self.world.require_same()
        assert self.world.named_files() <= self.world.data_files()

    def records_come(self) -> None:
        end = self.world.golden.local.high_watermark
        self.world.produce(min(COUNT, end + self.random.randrange(1, COUNT // 6)))

    def one_acts(self) -> None:
        run(self._act())

    def one_dies(self) -> None:
        self.said += run_until(self._act(), self.random.randrange(MOST_STEPS))

    def two_act(self) -> None:
        """Let two followers read the table, then take their steps in any order."""
        acts = [self._act(), self._act()]
        while acts:
            act = self.random.choice(acts)
            try:
                self.said.append(f"{acts.index(act)}: {next(act)}")
            except StopIteration:
                acts.remove(act)

    def one_is_slow(self) -> None:
        """Begin a slow follower, or continue one that stopped long ago."""
        if self._slow and self.random.random() < 0.5:
            self._goes_on(self.random.randrange(len(self._slow)))
            return
        act = self._act()
        if all(next(act, None) for _ in range(self.random.randrange(1, MOST_STEPS // 2))):
            self._slow.append(act)

    def the_log_is_cut(self) -> None:
        local = self.world.golden.local
        if local.local_start < local.high_watermark:
            start = self.random.randrange(local.local_start, local.high_watermark)
            self.world.golden.tiers.start_log_at(start)
            local.delete_records(start)
            self.world.golden.tiers.view.require_fresh(0, 0)

    def a_branch_is_lost(self) -> None:
        local = self.world.golden.local
        reach = self.world.table().place().partitions.get(0)
        first = max(local.local_start, self._epochs[-1].start_offset) + 1
        last = local.high_watermark if reach is None else min(reach.end, local.high_watermark)
        if self._elections == ELECTIONS or first >= last:
            return
        self._elections += 1
        end = self.random.randrange(max(first, last - COUNT // 4), last)
        epoch = LeaderEpoch(10 * self._elections)
        self._epochs.append(EpochEntry(epoch, Offset(end)))
        local.elect(epoch, end)
        self.world.golden.tiers.elect(Lineage(tuple(self._epochs)))
        self.world.golden.tiers.view.require_fresh(0, 0)

    def _goes_on(self, at: int) -> None:
        with suppress(*MOVED):  # its data is gone: it begins again, as any follower does
            self.said.append(f"a slow one: {run(self._slow.pop(at))}")

    def _act(self) -> Operation[Any]:
        kinds: list[Callable[[], Operation[Any]]] = [self.world.round, self._compacting, self._evolving]
        [kind] = self.random.choices(kinds, (3, 1, 2))
        return kind()

    def _compacting(self) -> Operation[Any]:
        table = self.world.table()
        return compact_bins(table, Attempt(self.world.attempt_id()), bins(table)[:2])

    def _evolving(self) -> Operation[Any]:
        """Evolve by settings, to the present or a later schema."""
        table = self.world.table()
        if table.facts.grows:
            return self.world.round()
        form = table.facts.columns.value
        assert form is not None
        now = DDL.index(form.schema)
        later = self.random.choice(DDL[now : now + 3])
        return commit(table, Attempt(self.world.attempt_id()), Change(table.place(), columns=columns_of(later)))


@contextmanager
def world_of(kind: str, make: Make, path: Path, **world: Any) -> Iterator[TypedWorld]:
    if kind == "avro":
        with avro_world(make, path, **world) as made:
            yield made
    else:
        yield json_world(make, path, **world)


@pytest.mark.parametrize("seed", [8, *(pytest.param(seed, marks=pytest.mark.extended) for seed in range(9, 20))])
@pytest.mark.parametrize("kind", few(["json", "avro"], ["avro"]))
def test_whatever_happens_every_record_is_a_row_once(golden_log: Make, tmp_path: Path, kind: str, seed: int) -> None:
    with world_of(kind, golden_log, tmp_path, limits=LIMITS) as world:
        history = History(world, Random(seed))
        try:
            history.take(40)
            history.end()
        except BaseException:
            print("\n".join(history.said))
            raise
