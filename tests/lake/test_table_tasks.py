"""The files of a commit, made by tasks elsewhere: the same rows; a task killed, late or done twice adds no row."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.fetch.two_tiers import Golden
from tests.lake.tables import NAME, TableWorld
from tests.lake.typed_tables import avro_world
from tests.operations import run_until
from tests.twins.manual_clock import ManualClock
from tierstate.app.opening.split_reads import Access
from tierstate.app.opening.store_place import StorePlace
from tierstate.lake import table_snapshots
from tierstate.lake.jobs import Job
from tierstate.lake.runs import Run, do, here, in_processes
from tierstate.lake.table_commit import by_tasks
from tierstate.lake.table_follow import Means, Step, TableLimits
from tierstate.lake.table_keeper import FollowPace, catch_up
from tierstate.lake.table_snapshots import Retention
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.operation import run
from tierstate.state.errors import PlannedRangeLost, Unavailable
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.options import StoreOptions

pytestmark = pytest.mark.extended

Make = Callable[..., Golden]
LIMITS = TableLimits(file_bytes=20_000, commit_bytes=60_000)


@pytest.fixture
def world(golden_log: Make, tmp_path: Path) -> TableWorld:
    """A world whose objects are files, so that other processes can read them."""
    (tmp_path / "store").mkdir()
    golden = golden_log("transactions", store=DirectoryStore(tmp_path / "store"))
    return TableWorld(golden, tmp_path / "world", limits=LIMITS, local=False)


def by(world: TableWorld, run_jobs: Run) -> TableWorld:
    """Let these jobs make the files of the world's rounds."""
    place = StorePlace((world.folder.parent / "store").as_uri(), StoreOptions())
    world.access = Access({}, place, None, bucket_alone=True)
    world.means = Means(write=by_tasks(run_jobs))
    return world


def travelled(jobs: Sequence[Job]) -> Iterator[tuple[int, Any]]:
    """Do the jobs, the last first, pickled as for an executor. A task's error is raised as Spark's own, as in Spark."""
    for job in reversed(jobs):
        try:
            outcome = pickle.dumps(do(pickle.loads(pickle.dumps(job))))
        except Exception as error:
            raise RuntimeError("a task failed") from error
        yield pickle.loads(outcome)


@pytest.fixture(scope="module")
def processes() -> Run:
    return in_processes(2, "table_commit")


def is_its_log(world: TableWorld) -> bool:
    return world.table_digest() == world.log_digest(end=world.log().extent(0)[1])


def test_tasks_in_processes_make_the_rows_that_one_process_makes(world: TableWorld, processes: Run) -> None:
    by(world, processes)
    done = world.follow()
    assert len(done) > 1
    assert max(each.files for each in done) > 2
    assert is_its_log(world)
    assert sum(each.rows for each in done) == world.table_digest()[0]
    assert world.named_files() == world.data_files()


@pytest.mark.extended
def test_a_task_takes_nothing_of_the_tables_history_with_it(world: TableWorld) -> None:
    """Ten thousand snapshots would go to each executor, for each task."""
    sizes: list[int] = []

    def weighed(jobs: Sequence[Job]) -> Iterator[tuple[int, Any]]:
        sizes.append(max(len(pickle.dumps(job)) for job in jobs))
        yield from here(jobs)

    by(world, weighed)
    world.limits = TableLimits(file_bytes=5_000, commit_bytes=5_000)
    assert len(world.follow()) > 20
    assert sizes[-1] < sizes[0] + 500


def test_a_task_that_is_done_twice_gives_its_rows_once(world: TableWorld) -> None:
    """An executor that was lost had done it, and another does it again; or both do, at once."""

    def twice(jobs: Sequence[Job]) -> Iterator[tuple[int, Any]]:
        for job in jobs:
            do(job)
            yield do(job)

    by(world, twice).follow()
    assert is_its_log(world)
    assert len(world.data_files()) == 2 * len(world.named_files())


def test_a_driver_that_dies_before_any_step_loses_nothing_and_repeats_nothing(world: TableWorld) -> None:
    by(world, travelled)
    rounds, step = 0, 0
    while True:
        taken = run_until(world.round(), step)
        if len(taken) < step:
            break
        rounds, step = rounds + 1, step + 1
    assert rounds == 4, "the tasks, manifests, the commit, and after it"
    world.follow()
    assert is_its_log(world)


def test_the_second_of_two_drivers_leaves_nothing(world: TableWorld) -> None:
    by(world, travelled)
    acts = [world.round(), world.round()]
    for act in acts:
        while next(act) != "commit":
            pass
    assert [run(act).step for act in acts] == [Step.APPENDED, Step.RACED]
    assert world.named_files() == world.data_files()
    world.follow()
    assert is_its_log(world)


def test_records_that_expire_under_a_task_fail_the_commit_whole(world: TableWorld) -> None:
    def one_is_lost(jobs: Sequence[Job]) -> Iterator[tuple[int, Any]]:
        yield do(jobs[0])
        yield jobs[1].number, PlannedRangeLost("gone", start=1)

    by(world, one_is_lost)
    with pytest.raises(PlannedRangeLost):
        run(world.round())
    assert not world.data_files()
    assert not world.table().place().partitions


@pytest.mark.extended
def test_a_task_says_when_the_columns_must_grow_and_counts_what_does_not_parse(
    golden_log: Make, tmp_path: Path
) -> None:
    (tmp_path / "store").mkdir()
    make = partial(golden_log, store=DirectoryStore(tmp_path / "store"))
    with avro_world(make, tmp_path, local=False) as world:
        by(world, travelled)
        rounds = world.follow()
        assert Step.EVOLVED in {each.step for each in rounds}
        assert sum(each.corrupt for each in rounds) == world.require_same() > 0


@pytest.mark.extended
def test_one_call_to_the_end_plans_again_what_expired_under_a_task_and_lets_old_snapshots_go(
    world: TableWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_snapshots, "EXPIRED_AT_ONCE", 5)
    calls: list[int] = []

    def lost_at_first(jobs: Sequence[Job]) -> Iterator[tuple[int, Any]]:
        calls.append(len(jobs))
        if len(calls) in (2, 3, 5):  # three times in a row would be an end
            yield jobs[0].number, PlannedRangeLost("gone", start=1)
        else:
            yield from travelled(jobs)

    by(world, lost_at_first)
    later = ManualClock(SystemClock().now_ms() + 10**9)
    pace = FollowPace(later, 0.0, Retention(10, 3_600_000), world.attempt_id)
    with world.catalog() as catalog:
        done = catch_up(catalog, NAME, world.log(), TableLimits(2_000, 2_000), pace, world.means)
    assert len(calls) == done.commits + 3 > 20
    assert len(world.table().iceberg.snapshots()) < 15
    assert is_its_log(world)


class Killed(Job):
    """A task whose process is killed once its files are written."""

    def made(self) -> Any:
        super().made()
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_fails_the_commit_and_the_same_again_goes_on(world: TableWorld, processes: Run) -> None:
    def second_is_killed(jobs: Sequence[Job]) -> Iterator[tuple[int, Any]]:
        killed = Killed(*(getattr(jobs[1], each.name) for each in fields(Job)))
        yield from processes([jobs[0], killed, *jobs[2:]])

    by(world, second_is_killed)
    with pytest.raises(Unavailable, match="a process that did tasks was killed"):
        run(world.round())
    assert not world.table().place().partitions
    by(world, processes).follow()
    assert is_its_log(world)
    assert world.named_files() < world.data_files(), "what it wrote waits for the sweep"
