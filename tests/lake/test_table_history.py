"""Changes of the log reach its table: deleted records and lost branches go, and a new topic is another table."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions.visitors import _ManifestEvalVisitor
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.update.snapshot import _FastAppendFiles, _OverwriteFiles

from tests.fetch.two_tiers import Golden
from tests.lake.tables import TableWorld
from tests.operations import run_until
from tierstate.lake.table import Change
from tierstate.lake.table_check import check_table
from tierstate.lake.table_follow import Step, TableLimits
from tierstate.lake.table_place import KEPT_EPOCHS, Reach, TablePlace, common_end
from tierstate.runtime.operation import run
from tierstate.state.epochs import EpochEntry, LeaderEpoch, Lineage
from tierstate.state.errors import CorruptData, InvalidRequest
from tierstate.state.ids import TopicId
from tierstate.state.offsets import Offset

pytestmark = pytest.mark.extended

Make = Callable[..., Golden]
ONE_COMMIT = TableLimits(10**9, 10**9)
SECOND_DAY = 1439
"""The first offset of the golden log's second day."""


@pytest.fixture
def world(golden_log: Make, tmp_path: Path) -> TableWorld:
    made = TableWorld(golden_log("transactions"), tmp_path)
    made.follow()
    return made


def delete_below(world: TableWorld, offset: int) -> None:
    """Delete records as `tierstate delete-records` and the topic's leader do."""
    world.golden.tiers.start_log_at(offset)
    world.golden.local.delete_records(offset)
    world.golden.tiers.view.require_fresh(0, 0)


def rows_in(files: set[str]) -> int:
    return sum(pq.read_metadata(each).num_rows for each in files)


def unclean_election(world: TableWorld, epoch: int, end: int) -> None:
    """Elect a leader whose log ends at ``end``."""
    world.golden.local.elect(epoch, end)
    entries = [each for each in world.golden.folder.lineage().entries if each.start_offset < end]
    lineage = Lineage((*entries, EpochEntry(LeaderEpoch(epoch), Offset(end))))
    world.golden.tiers.elect(lineage)
    world.golden.tiers.view.require_fresh(0, 0)


@pytest.mark.parametrize("start", [100, pytest.param(777, marks=pytest.mark.essential), 2042])
def test_deleted_records_leave_the_table(world: TableWorld, start: int) -> None:
    before, files = world.rows().num_rows, world.named_files()
    delete_below(world, start)
    [done] = world.follow()
    assert done.step is Step.EXPIRED
    assert done.rows == before - world.rows().num_rows > 0
    assert done.rewritten == rows_in(world.named_files() - files)
    assert world.table_digest() == world.log_digest()
    assert world.table().place().partitions[0].start == start
    if start < 2042:
        assert world.rows().column("offset")[0].as_py() >= start


def test_deleting_reads_only_the_files_that_keep_some_rows(world: TableWorld) -> None:
    before = world.named_files()
    delete_below(world, 777)
    [done] = world.follow()
    assert done.files <= 1
    assert len(before - world.named_files()) > 2


def threads_meet(monkeypatch: pytest.MonkeyPatch, day: int) -> None:
    """Threads of pyiceberg that look for files to delete share one evaluator: let it be asked about another day's
    manifest while it is about to answer for that of ``day``.
    """
    about_to, meanwhile, one = Event(), Event(), Lock()
    build, equal = cache(_OverwriteFiles._build_manifest_evaluator), _ManifestEvalVisitor.visit_equal

    def build_once(update: _OverwriteFiles, spec_id: int) -> Callable[[ManifestFile], bool]:
        with one:
            evaluator = build(update, spec_id)

        def ask(manifest: ManifestFile) -> bool:
            [days] = manifest.partitions or []
            if int.from_bytes(days.lower_bound or b"", "little") == day:
                return evaluator(manifest)
            about_to.wait(1)
            answer = evaluator(manifest)
            meanwhile.set()
            return answer

        return ask

    def answer_late(visitor: _ManifestEvalVisitor, term: Any, literal: Any) -> bool:
        if equal(visitor, term, literal):
            about_to.set()
            meanwhile.wait(1)
        return equal(visitor, term, literal)

    monkeypatch.setattr(_OverwriteFiles, "_build_manifest_evaluator", build_once)
    monkeypatch.setattr(_ManifestEvalVisitor, "visit_equal", answer_late)


def test_a_file_goes_though_threads_of_pyiceberg_ask_about_other_days_at_once(
    golden_log: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = TableWorld(golden_log("transactions"), tmp_path, limits=ONE_COMMIT)
    local = world.golden.local
    for end in (SECOND_DAY, world.golden.folder.end()):  # a commit and a manifest for each of the two days
        local.high_watermark = local.last_stable_offset = end
        world.follow()
    delete_below(world, SECOND_DAY)
    threads_meet(monkeypatch, min(file.partition[0] for file in world.table().data_files()))
    assert [each.step for each in world.follow()] == [Step.EXPIRED]
    assert world.table_digest() == world.log_digest()


def test_a_file_that_went_already_is_not_taken_out_again(world: TableWorld) -> None:
    table = world.table()
    before = table.data_files()
    delete_below(world, 777)
    world.follow()
    table.refresh()
    with pytest.raises(CorruptData, match="a file that is to go is none of the table's"):
        table.prepared(Change(table.place(), drop=before), "attempt")


def test_an_archive_keeps_what_the_log_deleted(golden_log: Make, tmp_path: Path) -> None:
    world = TableWorld(golden_log("transactions"), tmp_path, keep=True)
    run(world.round())
    before = world.table_digest()
    delete_below(world, 100)
    world.follow()
    assert world.table().place().partitions[0].start == 0
    whole = world.rows()
    assert whole.slice(0, before[0]).column("offset")[0].as_py() < 100
    assert whole.num_rows > before[0]


def test_an_archive_counts_what_was_deleted_before_it_was_a_row(golden_log: Make, tmp_path: Path) -> None:
    world = TableWorld(golden_log("transactions"), tmp_path, keep=True)
    run(world.round())
    end = world.table().place().partitions[0].end
    delete_below(world, end + 50)
    rounds = world.follow()
    assert [each.missed for each in rounds if each.missed] == [50]


def test_a_table_of_a_log_whose_beginning_is_gone_begins_there(golden_log: Make, tmp_path: Path) -> None:
    world = TableWorld(golden_log("transactions"), tmp_path)
    delete_below(world, 500)
    assert all(each.step is Step.APPENDED for each in world.follow())
    assert world.table_digest() == world.log_digest()


def test_rows_of_a_lost_branch_are_taken_out_by_a_commit_of_their_own(world: TableWorld) -> None:
    snapshots, before = len(world.table().iceberg.snapshots()), world.rows().num_rows
    unclean_election(world, 99, 1500)
    [done] = world.follow()
    assert done.step is Step.LOST_BRANCH
    assert done.rows == before - world.rows().num_rows > 0
    assert len(world.table().iceberg.snapshots()) == snapshots + 1
    assert world.table_digest() == world.log_digest(end=1500)
    assert world.table().place().partitions[0].end == 1500


@pytest.mark.extended
def test_records_after_a_lost_branch_are_read_again(world: TableWorld) -> None:
    """The new leader's log has the folder's records again, under another epoch."""
    unclean_election(world, 99, 1500)
    world.follow()
    world.golden.local.high_watermark = world.golden.local.last_stable_offset = world.golden.folder.end()
    assert {each.step for each in world.follow()} == {Step.APPENDED}
    assert world.table_digest() == world.log_digest()
    assert world.table().place().partitions[0].lineage.entries[-1] == EpochEntry(LeaderEpoch(99), Offset(1500))


@pytest.mark.extended
def test_a_lost_branch_is_taken_out_also_when_the_new_log_is_longer_already(world: TableWorld) -> None:
    unclean_election(world, 99, 1500)
    world.golden.local.high_watermark = world.golden.local.last_stable_offset = world.golden.folder.end()
    assert [each.step for each in world.follow()][:2] == [Step.LOST_BRANCH, Step.APPENDED]
    assert world.table_digest() == world.log_digest()


@pytest.mark.extended
def test_a_view_that_is_behind_the_table_takes_nothing_out(world: TableWorld) -> None:
    """Another follower committed rows of a later epoch: to this follower they look like a lost branch."""
    unclean_election(world, 99, 1500)
    world.golden.local.high_watermark = world.golden.local.last_stable_offset = world.golden.folder.end()
    world.follow()
    table, place = world.table(), world.table().place()
    reach = place.partitions[0]
    later = Reach(reach.start, reach.end, Lineage((*reach.lineage.entries, EpochEntry(LeaderEpoch(120), Offset(1900)))))
    table.place = lambda: TablePlace({0: later})  # type: ignore[method-assign]
    done = run(world.round(table))
    assert done.step is Step.NOTHING
    assert "later leader epoch" in str(done.waiting[0])


@pytest.mark.parametrize("how", ["deleted", "lost"])
@pytest.mark.parametrize("step", range(3))  # a file that keeps some rows, manifests, the commit
def test_a_writer_that_dies_while_it_takes_rows_out_leaves_the_table_as_it_was(
    golden_log: Make, tmp_path: Path, how: str, step: int
) -> None:
    world = TableWorld(golden_log("transactions"), tmp_path, limits=TableLimits(40_000, 10**9))
    world.follow()
    before = world.table_digest()
    if how == "deleted":
        delete_below(world, 777)
    else:
        unclean_election(world, 99, 1500)
    assert len(run_until(world.round(), step)) == step
    assert world.table_digest() == before
    [done] = world.follow()
    assert done.step in (Step.EXPIRED, Step.LOST_BRANCH)
    assert world.table_digest() == world.log_digest()


def test_a_topic_that_was_recreated_stops_its_table(world: TableWorld) -> None:
    control = world.golden.control
    described = control._described
    control._described = type(described)("t", TopicId.of(b"another-topic-id"), False, described.partitions)
    world.golden.reader._topics.clear()  # the answer is cached for some seconds
    with pytest.raises(InvalidRequest, match="the topic was made anew"):
        run(world.round())


def test_a_foreign_snapshot_leaves_the_place_where_it_was(world: TableWorld) -> None:
    place = world.table().place()
    iceberg = world.table().iceberg
    with iceberg.transaction() as transaction, transaction.update_snapshot().fast_append():
        pass
    assert world.table().place() == place
    checked = check_table(world.table(), world.log())
    [commit] = checked.foreign
    assert (commit.operation, commit.added_rows, commit.deleted_rows) == ("append", 0, 0)
    assert checked.findings == []


class _DeleteManifest(ManifestWriterV2):
    """A manifest of delete files: pyiceberg has no writer of them."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES


def delete_by_file(world: TableWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete the first row by a file of positions, as an engine with merge-on-read does."""
    table = world.table()
    [file] = table.data_files(f"offset == {world.first_offset()}")
    url, ids = table.url("deletes.parquet"), {"file_path": 2147483546, "pos": 2147483545}
    types = {"file_path": pa.string(), "pos": pa.int64()}
    fields = [pa.field(name, types[name], False, {"PARQUET:field_id": str(at)}) for name, at in ids.items()]
    pq.write_table(pa.table([[file.file_path], [0]], pa.schema(fields)), url.removeprefix("file://"))
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=url,
        file_format=FileFormat.PARQUET,
        partition=file.partition,
        record_count=1,
        file_size_in_bytes=Path(url.removeprefix("file://")).stat().st_size,
    )
    deletes.spec_id = file.spec_id

    def writer(update: _FastAppendFiles, spec: PartitionSpec) -> ManifestWriterV2:
        output = update.new_manifest_output()
        return _DeleteManifest(spec, update.schema(), output, update.snapshot_id, update._compression)

    with monkeypatch.context() as patch:
        patch.setattr(_FastAppendFiles, "new_manifest_writer", writer)
        with table.iceberg.transaction() as transaction, transaction.update_snapshot().fast_append() as snapshot:
            snapshot.append_data_file(deletes)


def test_rows_that_another_engine_deleted_by_delete_files_stop_what_would_bring_them_back(
    world: TableWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = world.rows().num_rows
    delete_by_file(world, monkeypatch)
    assert world.rows().num_rows == before - 1
    assert run(world.round()).step is Step.RESTATED
    said = "another engine deleted rows of this table by delete files"
    with pytest.raises(InvalidRequest, match=said):
        check_table(world.table(), world.log())
    delete_below(world, 777)
    with pytest.raises(InvalidRequest, match=said):
        run(world.round())
    assert world.rows().num_rows == before - 1


def reach(end: int, *lineage: tuple[int, int], start: int = 0) -> Reach:
    return Reach(Offset(start), Offset(end), Lineage.of(*lineage))


@pytest.mark.parametrize(
    ("table", "log", "log_start", "shared"),
    [
        (reach(100, (0, 0), (2, 50)), [(0, 0), (2, 50)], 0, 100),
        (reach(100, (0, 0), (2, 50)), [(0, 0), (2, 50), (3, 80)], 0, 80),
        (reach(100, (0, 0), (2, 50)), [(0, 0), (3, 40)], 0, 40),
        (reach(100, (0, 0), (2, 50)), [(0, 0), (3, 70)], 0, 50),  # 50 to 70 have another epoch in the table
        (reach(100, (0, 0), (2, 50)), [(4, 0)], 0, 0),
        (reach(100, (0, 0), (2, 50)), [(4, 60)], 60, 60),  # deleted records are not compared
        (reach(100, (0, 0), (2, 50)), [(4, 200)], 200, 100),
        (reach(100, (0, 0)), [(5, 500)], 0, 100),  # the log's epochs are unknown so far down
    ],
)
def test_rows_are_the_logs_up_to_where_the_two_leave_one_epoch(
    table: Reach, log: list[tuple[int, int]], log_start: int, shared: int
) -> None:
    assert common_end(table, Lineage.of(*log), Offset(log_start)) == shared


def test_a_branch_that_was_lost_below_what_the_table_knows_stops_it() -> None:
    with pytest.raises(InvalidRequest, match="further down than the table knows"):
        common_end(reach(100, (7, 90)), Lineage.of((0, 0), (8, 20)), Offset(0))


def test_a_place_keeps_the_newest_epochs_and_reads_back() -> None:
    reach_so_far = Reach(Offset(0), Offset(0))
    for epoch in range(20):
        reach_so_far = reach_so_far.to(
            Offset(10 * (epoch + 1)), Lineage.of(*((each, 10 * each) for each in range(epoch + 1))), epoch // 5
        )
    assert reach_so_far.lineage == Lineage.of(*((each, 10 * each) for each in range(20 - KEPT_EPOCHS, 20)))
    place, topic_id = TablePlace({0: reach_so_far, 3: reach(5)}), TopicId.of(b"golden-topic-id!")
    summary = place.as_summary(topic_id, "attempt")
    assert TablePlace.of_summary(summary, topic_id) == place
    with pytest.raises(CorruptData, match="another topic"):
        TablePlace.of_summary(summary, TopicId.of(b"another-topic-id"))


def test_rows_read_while_the_lineage_changed_are_not_committed(golden_log: Make, tmp_path: Path) -> None:
    world = TableWorld(golden_log("transactions"), tmp_path, limits=TableLimits(40_000, 80_000))
    act = world.round()
    assert next(act).startswith("put ")
    unclean_election(world, 99, 1500)
    assert run(act).step is Step.RACED
    assert not world.data_files()
    world.follow()
    assert world.table_digest() == world.log_digest(end=1500)


def test_beyond_what_the_view_knows_of_the_leaders_log_nothing_is_read(golden_log: Make, tmp_path: Path) -> None:
    """The new leader's agent has not written yet: the epoch of its newest records is unknown, so they cannot commit."""
    world = TableWorld(golden_log("transactions"), tmp_path)
    local = world.golden.local
    local.elect(99, 1500)
    local.high_watermark = local.last_stable_offset = world.golden.folder.end()
    world.follow()
    assert world.table().place().partitions[0].end == 1500
    unclean_election(world, 99, 1500)
    local.high_watermark = local.last_stable_offset = world.golden.folder.end()
    assert {each.step for each in world.follow()} == {Step.APPENDED}
    assert world.table_digest() == world.log_digest()
