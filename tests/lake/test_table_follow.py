"""A table is its log: every record once, whether writers die, race, or get no answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from sqlalchemy import event
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from tests.fetch.two_tiers import GOLDEN, Golden
from tests.lake.tables import TableWorld
from tests.operations import run_until
from tests.tiers import few
from tierstate.lake.jobs import Task
from tierstate.lake.table import RETRIES, Change
from tierstate.lake.table_files import Attempt, write_rows
from tierstate.lake.table_follow import Round, Step, TableLimits
from tierstate.lake.table_place import TablePlace
from tierstate.runtime.operation import Operation, run
from tierstate.state.errors import UnknownOutcome
from tierstate.state.offsets import Extent, Offset
from tierstate.state.routing import Isolation

Make = Callable[..., Golden]
CASES = sorted(each.name for each in GOLDEN.iterdir() if each.is_dir())
THREE_COMMITS = TableLimits(file_bytes=40_000, commit_bytes=100_000)


@pytest.mark.parametrize("case", few(CASES, ("epochs", "opentxn", "transactions", "zstd")))
@pytest.mark.parametrize("isolation", Isolation)
def test_a_tables_digest_is_the_logs(golden_log: Make, tmp_path: Path, case: str, isolation: Isolation) -> None:
    world = TableWorld(golden_log(case), tmp_path, isolation=isolation, limits=THREE_COMMITS)
    assert world.follow()
    assert world.table_digest() == world.log_digest()
    assert world.named_files() == world.data_files()


def test_a_follower_of_finished_segments_ends_where_the_remote_tier_does(golden_log: Make, tmp_path: Path) -> None:
    world = TableWorld(golden_log("transactions", copies=2), tmp_path, local=False)
    world.follow()
    end = world.golden.segments[-1].offsets.end + 1
    assert end < world.golden.folder.end()
    assert world.table().place().partitions[0].end == end
    assert world.table_digest() == world.log_digest(end=end)


@pytest.mark.extended
def test_each_commit_says_where_it_brings_the_table_to(golden_log: Make, tmp_path: Path) -> None:
    world = TableWorld(golden_log("transactions"), tmp_path)
    ends, rows = [], 0
    while (done := run(world.round())).step is Step.APPENDED:
        rows += done.rows
        ends.append(world.table().place().partitions[0].end)
        assert world.table_digest() == world.log_digest(end=ends[-1])
        assert world.rows().num_rows == rows
    assert len(ends) > 2
    assert ends[-1] == world.log().extent(0)[1]


@pytest.mark.extended
def test_many_small_commits_leave_few_manifests_and_every_record_once(golden_log: Make, tmp_path: Path) -> None:
    """Every reader would read one manifest for each of them. But a commit never merges all files' entries again."""
    world = TableWorld(golden_log("transactions"), tmp_path, limits=TableLimits(file_bytes=800, commit_bytes=800))
    commits = len(world.follow())
    iceberg = world.table().iceberg
    head = iceberg.current_snapshot()
    assert head is not None
    manifests = head.manifests(iceberg.io)
    entries = [(each.added_files_count or 0) + (each.existing_files_count or 0) for each in manifests]
    assert len(manifests) < 20 < 100 < commits
    assert max(entries) < 150 < sum(entries)
    assert world.table_digest() == world.log_digest()
    assert world.named_files() == world.data_files()


@pytest.mark.extended
def test_a_range_without_a_record_moves_the_place_all_the_same(golden_log: Make, tmp_path: Path) -> None:
    world = TableWorld(golden_log("transactions"), tmp_path, limits=TableLimits(file_bytes=2_000, commit_bytes=2_000))
    rounds = world.follow()
    assert [each for each in rounds if not each.rows]
    assert world.table_digest() == world.log_digest()


def test_a_writer_that_dies_before_any_step_loses_nothing_and_repeats_nothing(golden_log: Make, tmp_path: Path) -> None:
    golden = golden_log("transactions")
    count = steps_of(golden, tmp_path / "counted")
    assert count >= 5  # two files at least, manifests, the commit
    for step in range(count):
        world = TableWorld(golden, tmp_path / str(step), limits=THREE_COMMITS)
        run(world.round())
        taken = run_until(world.round(), step)
        assert len(world.follow()) == 2
        assert world.table_digest() == world.log_digest(), f"died after {taken}"
        assert world.named_files() <= world.data_files()


def steps_of(golden: Golden, folder: Path) -> int:
    world = TableWorld(golden, folder, limits=THREE_COMMITS)
    run(world.round())
    return len(run_until(world.round(), 1000))


def advance(act: Operation[Round], steps: int) -> None:
    for _ in range(steps):
        next(act)


@pytest.mark.extended
@pytest.mark.parametrize("second_ends_first", [False, True])
def test_two_writers_that_race_at_any_two_steps_show_every_record_once(
    golden_log: Make, tmp_path: Path, second_ends_first: bool
) -> None:
    golden = golden_log("transactions")
    count = steps_of(golden, tmp_path / "counted")
    for at in range(1, count + 1):
        for other_at in range(1, count + 1):
            world = TableWorld(golden, tmp_path / f"{at}-{other_at}", limits=THREE_COMMITS)
            run(world.round())
            acts = [world.round(), world.round()]
            advance(acts[0], at)
            advance(acts[1], other_at)
            first, second = (acts[1], acts[0]) if second_ends_first else (acts[0], acts[1])
            assert run(first).step is Step.APPENDED
            assert run(second).step is Step.RACED
            world.follow()
            assert world.table_digest() == world.log_digest(), (at, other_at)
            assert world.named_files() == world.data_files(), "the second one leaves nothing behind"


BEFORE, BEHIND = Offset(2), Offset(100)


def begun(golden: Golden, folder: Path) -> TableWorld:
    """Return a world whose table has the rows below `BEFORE`."""
    world = TableWorld(golden, folder, limits=TableLimits(1, 1), isolation=Isolation.READ_UNCOMMITTED)
    while run(world.round()).step is Step.APPENDED and world.table().place().partitions[0].end < BEFORE:
        pass
    return world


def both_append(world: TableWorld) -> list[Callable[[], Any]]:
    """Return two writers' commits, computed from the same place; each is sent when it is called."""
    commits: list[Callable[[], Any]] = []
    for name in ("a", "b"):
        table = world.table()
        attempt = Attempt(name)
        [split] = world.log().planned(0, Extent(BEFORE, BEHIND)).splits(10**9)
        run(write_rows(table, attempt, Task(0, 0, BEFORE, BEHIND), world.log().read(split), table.new_rows()))
        commits.append(table.prepared(Change(TablePlace({}), tuple(attempt.files)), name).commit_transaction)
    return commits


def test_without_retries_the_second_of_two_commits_fails(golden_log: Make, tmp_path: Path) -> None:
    world = begun(golden_log("transactions"), tmp_path)
    first, second = both_append(world)
    first()
    with pytest.raises(CommitFailedException, match="branch main has changed"):
        second()
    assert world.table_digest() == world.log_digest(end=BEHIND)


def test_with_pyicebergs_own_retries_both_commits_would_land(golden_log: Make, tmp_path: Path) -> None:
    """This documents the danger that the property closes; the test shows when it no longer exists."""
    world = begun(golden_log("transactions"), tmp_path)
    iceberg = world.table().iceberg
    with iceberg.transaction() as transaction:
        transaction.set_properties({"commit.retry.min-wait-ms": "1"})
    before = world.table
    world.table = lambda: _without_retries(before())  # type: ignore[method-assign]
    first, second = both_append(world)
    first()
    second()
    offsets = iceberg.refresh().scan(row_filter=f"offset >= {BEFORE}").to_arrow().column("offset").to_pylist()
    assert sorted(offsets) == sorted([*set(offsets), *set(offsets)])


def _without_retries(table: Any) -> Any:
    del table.iceberg.metadata.properties[RETRIES]
    return table


def test_what_the_table_lets_other_engines_repeat_a_follower_does_not(golden_log: Make, tmp_path: Path) -> None:
    """Spark's maintenance of a followed table needs its retries."""
    world = begun(golden_log("transactions"), tmp_path)
    with world.table().iceberg.transaction() as transaction:
        transaction.set_properties({RETRIES: "4", "commit.retry.min-wait-ms": "1"})
    acts = [world.round(), world.round()]
    for act in acts:
        while next(act) != "commit":
            pass
    assert [run(act).step for act in acts] == [Step.APPENDED, Step.RACED]
    with world.catalog() as catalog:
        assert catalog._catalog.load_table(("kafka", "t")).properties[RETRIES] == "4"


@contextmanager
def failing(moment: str, error: BaseException) -> Iterator[None]:
    """Make the catalog's next commit fail: SQLAlchemy's ``before_commit``, or ``after_commit`` once it took place."""

    def fail(session: Session) -> None:
        raise error

    event.listen(Session, moment, fail, once=True)
    try:
        yield
    finally:
        if event.contains(Session, moment, fail):
            event.remove(Session, moment, fail)


AWAY = OperationalError("commit", {}, Exception("disk I/O error"))


def test_a_commit_that_landed_without_an_answer_is_known_by_the_place(golden_log: Make, tmp_path: Path) -> None:
    world = TableWorld(golden_log("transactions"), tmp_path, limits=THREE_COMMITS)
    with failing("after_commit", AWAY):
        assert run(world.round()).step is Step.APPENDED
    assert len(world.follow()) == 2
    assert world.table_digest() == world.log_digest()
    assert world.named_files() == world.data_files()


def test_a_commit_without_an_answer_that_did_not_land_is_done_again_and_its_files_stay_for_the_sweep(
    golden_log: Make, tmp_path: Path
) -> None:
    world = TableWorld(golden_log("transactions"), tmp_path, limits=THREE_COMMITS)
    with failing("before_commit", AWAY), pytest.raises(UnknownOutcome, match="did not say whether a commit landed"):
        run(world.round())
    left = world.data_files()
    assert left
    world.follow()
    assert world.table_digest() == world.log_digest()
    assert left <= world.data_files()


def test_a_writer_that_dies_once_its_commit_has_landed_repeats_nothing(golden_log: Make, tmp_path: Path) -> None:
    world = TableWorld(golden_log("transactions"), tmp_path, limits=THREE_COMMITS)
    with failing("after_commit", SystemExit()), pytest.raises(SystemExit):
        run(world.round())
    assert len(world.follow()) == 2
    assert world.table_digest() == world.log_digest()
