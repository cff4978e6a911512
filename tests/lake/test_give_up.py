"""An export that cannot be finished is ended as it is: its records stay; missing ones are reported and free again."""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa
import pytest

from tests.fetch.two_tiers import Golden
from tests.lake.exports import Killed, World, digest_of
from tests.lake.test_export import log_digest
from tests.operations import run_until
from tierstate.lake.export_check import check
from tierstate.lake.export_plan import ExportPlan
from tierstate.lake.export_task import export_task
from tierstate.lake.names import given_up_key
from tierstate.runtime.operation import run
from tierstate.state.errors import InvalidRequest, OffsetOutOfRange

Make = Callable[..., Golden]
STEPS = 5
"""The number of steps taken: two tasks are committed, and files of the third are there."""


def begun(golden: Golden) -> World:
    """Return a place where an export died before the commit of its third task."""
    world = World(golden)
    world.dies_at = STEPS
    with pytest.raises(Killed):
        world.export().do(world.wanted())
    world.dies_at = None
    assert sorted(world.ledger.done(the_plan(world))) == [0, 1]
    assert len([key for key in world.objects() if key.endswith(".parquet")]) == 3
    return world


def the_plan(world: World) -> ExportPlan:
    [plan] = world.ledger.plans()
    return plan


@pytest.fixture
def golden(golden_log: Make) -> Golden:
    made = golden_log("transactions")
    made.local.local_start = made.folder.bases[-1] - 3
    return made


def given_up(world: World) -> World:
    for plan in world.ledger.open_plans():
        run(world.ledger.give_up(plan))
    return world


def test_expired_records_are_given_up_and_the_next_export_has_the_rest(golden: Golden) -> None:
    world = begun(golden)
    plan = the_plan(world)
    start = plan.tasks[2].start + 10
    golden.tiers.start_log_at(start)
    golden.tiers.view.require_fresh(0, 0)
    failed = world.export().do(world.wanted(start)).not_exported
    assert [(each.start, each.end) for each in failed] == [(plan.tasks[2].start, plan.tasks[2].end)]
    assert all(isinstance(each.error, OffsetOutOfRange) for each in failed)
    given_up(world)
    committed = {file.key for each in world.ledger.done(plan).values() for file in each.files}
    assert {key for key in world.objects() if key.endswith(".parquet")} == committed
    document = json.loads(world.place.get(given_up_key(plan)))
    assert document["missing"] == [[task.partition, task.start, task.end] for task in plan.tasks[2:3]]
    assert {each["key"] for each in document["files"]} == committed
    world.export().do(world.wanted(start))
    rows = [table for table in world.tables() if table["offset"][0].as_py() >= start]
    assert digest_of(pa.concat_tables(rows).sort_by("offset")) == log_digest(world, start)
    report = check(world.export())
    assert report.findings == []
    assert report.given_up == plan.tasks[2].end - plan.tasks[2].start


def test_killed_before_any_of_its_steps_and_done_again_it_leaves_the_very_same_objects(golden: Golden) -> None:
    whole = begun(golden)
    steps = list(whole.ledger.give_up(the_plan(whole)))
    assert [each.split()[0] for each in steps] == ["give", "give", "give", "remove", "end"]
    for step in range(len(steps) + 1):
        world = begun(golden)
        run_until(world.ledger.give_up(the_plan(world)), step)
        assert given_up(world).objects() == whole.objects()
        assert given_up(world).objects() == whole.objects()


@pytest.mark.parametrize("steps", [1, 2])
def test_a_run_of_a_task_that_was_given_up_adds_nothing_to_the_place(golden: Golden, steps: int) -> None:
    """``steps`` 1: the run has yet to put its file; 2: it has yet to commit."""
    world = begun(golden)
    plan = the_plan(world)
    [job] = world.export().jobs(plan, [plan.tasks[2]])
    late = export_task(plan, plan.tasks[2], world.batches(job), world.ledger)
    for _ in range(steps):
        next(late)
    given_up(world)
    world.export().do(world.wanted())
    before = world.objects()
    assert world.digest() == log_digest(world)
    with pytest.raises(InvalidRequest, match="given up"):
        run(late)
    assert world.objects() == before


def test_the_check_finds_files_of_a_dead_run_and_giving_up_deletes_them(
    golden: Golden,
) -> None:
    world = begun(golden)
    plan = the_plan(world)
    [job] = world.export().jobs(plan, [plan.tasks[2]])
    late = export_task(plan, plan.tasks[2], world.batches(job), world.ledger)
    given_up(world)
    clean = world.objects()
    run_until(late, 1)
    stray = [key for key in world.objects() if key not in clean]
    assert [each.key for each in check(world.export()).findings] == stray
    assert len(stray) == 1
    assert given_up(world).objects() == clean


def test_a_task_that_was_committed_first_is_not_given_up(golden: Golden) -> None:
    world = begun(golden)
    plan = the_plan(world)
    act = world.ledger.give_up(plan)
    next(act)
    [job] = world.export().jobs(plan, [plan.tasks[2]])
    run(export_task(plan, plan.tasks[2], world.batches(job), world.ledger))
    run(act)
    assert [task.number for task in world.ledger.missing(plan)] == [task.number for task in plan.tasks[3:]]
    assert check(world.export()).findings == []


def test_an_export_whose_last_task_commits_during_giving_up_is_whole(golden: Golden) -> None:
    world = begun(golden)
    plan = the_plan(world)
    act = world.ledger.give_up(plan)
    next(act)
    for job in world.export().jobs(plan, plan.tasks[2:]):
        run(export_task(plan, job.task, world.batches(job), world.ledger))
    run(act)
    assert world.ledger.is_whole(plan)
    assert not world.ledger.is_given_up(plan)


def test_an_export_that_is_half_given_up_is_never_finished(golden: Golden) -> None:
    world = begun(golden)
    run_until(world.ledger.give_up(the_plan(world)), 1)
    with pytest.raises(InvalidRequest, match="being given up"):
        world.export().do(world.wanted())
    given_up(world)
    world.export().do(world.wanted())
    assert world.digest() == log_digest(world)


def test_an_export_that_is_whole_is_never_given_up(golden: Golden) -> None:
    world = World(golden)
    world.export().do(world.wanted())
    before = world.objects()
    assert given_up(world).objects() == before
