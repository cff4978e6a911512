"""An export of golden logs in two tiers: the log's records, each once, whatever happens to the writers."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fetch.two_tiers import GOLDEN, Golden
from tests.lake.exports import Killed, World
from tests.lake.typed_logs import folder_of
from tests.tiers import few
from tierstate.fetch.piece import records
from tierstate.lake.export_check import check
from tierstate.lake.export_task import DescribedFile
from tierstate.lake.jobs import Job
from tierstate.lake.names import LEDGER
from tierstate.lake.parquet import writer_of
from tierstate.log.record_columns import record_schema
from tierstate.log.record_digest import RecordDigest
from tierstate.state.errors import (
    CorruptData,
    InvalidRequest,
    ObjectNotFound,
    PlannedRangeLost,
    StorageUnavailable,
    TierstateError,
)
from tierstate.state.ids import TopicId
from tierstate.state.routing import Isolation
from tierstate.storage.memory import MemoryStore

Make = Callable[..., Golden]
CASES = sorted(each.name for each in GOLDEN.iterdir() if each.is_dir())
BOTH = (Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED)


def log_digest(world: World, start: int = 0) -> tuple[int, str]:
    digest = RecordDigest()
    golden = world.golden
    for piece in golden.reader.scan("t", 0, start, world.end, isolation=world.shape.isolation):
        for batch in records(piece, "t", 0):
            digest.update(batch)
    return digest.count, digest.hexdigest()


@pytest.fixture
def world(golden_log: Make) -> World:
    """Transactions, some aborted, in both tiers."""
    golden = golden_log("transactions")
    golden.local.local_start = golden.folder.bases[-1] - 3
    return World(golden)


@pytest.mark.parametrize("isolation", BOTH)
@pytest.mark.parametrize("case", few(CASES, ("epochs", "opentxn", "transactions", "zstd")))
def test_the_files_have_the_logs_records_of_both_tiers(golden_log: Make, case: str, isolation: Isolation) -> None:
    golden = golden_log(case)
    golden.local.local_start = golden.folder.bases[-1] // 2
    world = World(golden, isolation=isolation)
    done = world.export().do(world.wanted())
    assert world.digest() == log_digest(world)
    assert done.records == world.digest()[0]
    assert len(world.ledger.plans()) == 1
    assert world.ledger.is_whole(world.ledger.plans()[0])


def test_the_manifest_names_every_file_with_its_offsets_counts_and_digests(world: World) -> None:
    world.export().do(world.wanted())
    objects = world.objects()
    [manifest] = [json.loads(data) for key, data in objects.items() if key.endswith("manifest.json")]
    assert {each["key"] for each in manifest["files"]} == {key for key in objects if key.endswith(".parquet")}
    assert manifest["records"] == world.digest()[0]
    for entry in manifest["files"]:
        rows = pq.read_table(io.BytesIO(objects[entry["key"]]))
        digest = RecordDigest()
        digest.update(rows)
        offsets = rows.column("offset").to_pylist()
        times = rows.column("timestamp").cast(pa.int64()).to_pylist()
        assert offsets == sorted(offsets)
        assert (entry["records"], entry["digest"]) == (digest.count, digest.hexdigest())
        assert (entry["first_offset"], entry["last_offset"]) == (offsets[0], offsets[-1])
        assert (entry["min_timestamp"], entry["max_timestamp"]) == (min(times) // 1000, max(times) // 1000)
        assert entry["bytes"] == len(objects[entry["key"]])
        assert {f"{each:%Y-%m-%d}" for each in rows.column("timestamp").to_pylist()} == {entry["date"]}


def test_files_are_the_same_bytes_for_any_windows_and_tiers(golden_log: Make) -> None:
    made = []
    for piece_bytes, local_start in ((1, 0), (5_000, 900), (8 << 20, None)):
        golden = golden_log("zstd", chunk_bytes=3_000)
        golden.local.local_start = golden.folder.bases[-1] if local_start is None else local_start
        world = World(golden)
        world.piece_bytes = piece_bytes
        plan = World(golden_log("zstd")).export().next_plan(world.wanted())
        assert plan is not None
        world.ledger.add(plan)
        world.export().do(world.wanted())
        made.append({key: data for key, data in world.objects().items() if key.endswith(".parquet")})
    assert made[0] == made[1] == made[2]
    assert len(made[0]) > 2


def test_killed_before_any_step_and_run_again_it_leaves_the_very_same_objects(world: World, golden_log: Make) -> None:
    world.export().do(world.wanted())
    expected = world.objects()
    steps = 0
    while True:
        again = World(world.golden)
        again.dies_at = steps
        try:
            again.export().do(again.wanted())
        except Killed:
            again.dies_at = None
            again.export().do(again.wanted())
            assert again.objects() == expected
            steps += 1
            continue
        break
    assert steps == len([key for key in expected if key.endswith(".parquet") or "/task-" in key])


def test_two_processes_that_export_the_same_make_one_export(world: World) -> None:
    other = World(world.golden, world.place)
    other.place = world.place

    def interleaved(jobs: Sequence[Job]) -> Iterator[tuple[int, Any]]:
        for job in jobs:
            list(other.here([job]))  # the other one is always just before us
            yield from world.here([job])

    world.export(interleaved).do(world.wanted())
    assert world.digest() == log_digest(world)
    assert len(world.ledger.plans()) == 1


def test_the_first_of_two_plans_is_done_and_then_the_rest(world: World) -> None:
    export = world.export()
    late = export.next_plan(world.wanted())
    assert late is not None
    other = World(world.golden, world.place)
    first = other.export().next_plan(other.wanted(0, 500))
    assert first is not None
    other.ledger.add(first)
    assert export.ledger.add(late) == first
    export.do(world.wanted())
    assert [[(task.start, task.end) for task in plan.tasks][-1][1] for plan in world.ledger.plans()] == [500, world.end]
    assert world.digest() == log_digest(world)


def test_asked_for_more_it_adds_what_is_not_there_and_asked_again_nothing(world: World) -> None:
    for start, end in ((300, 700), (0, 500), (200, world.end), (0, world.end)):
        world.export().do(world.wanted(start, end))
    assert world.digest() == log_digest(world)
    assert len(world.ledger.plans()) == 3
    before = world.objects()
    assert world.export().do(world.wanted()).plans == []
    assert world.objects() == before


def test_an_open_plan_is_finished_before_a_new_one(world: World) -> None:
    world.dies_at = 1
    with pytest.raises(Killed):
        world.export().do(world.wanted(100, 900))
    world.dies_at = None
    world.export().do(world.wanted(0, 50))
    assert [(plan.tasks[0].start, plan.tasks[-1].end) for plan in world.ledger.plans()] == [(100, 900), (0, 50)]
    assert all(world.ledger.is_whole(plan) for plan in world.ledger.plans())


def test_a_place_has_one_shape_of_a_topic(world: World) -> None:
    world.export().do(world.wanted(0, 100))
    for other in (
        World(world.golden, world.place, columns=("offset", "value")),
        World(world.golden, world.place, isolation=Isolation.READ_UNCOMMITTED),
    ):
        with pytest.raises(InvalidRequest, match="another shape"):
            other.export().do(other.wanted())


def test_open_plans_of_another_writer_are_refused_and_done_ones_not(world: World) -> None:
    plan = world.export().next_plan(world.wanted(0, 200))
    assert plan is not None
    world.ledger.add(replace(plan, shape=replace(plan.shape, writer="pyarrow 1.0.0")))
    with pytest.raises(InvalidRequest, match="another version of the library"):
        world.export().do(world.wanted())
    world.ledger.finish(world.ledger.plans()[0], [])
    assert world.export().do(world.wanted(200)).records > 0


def test_other_bytes_under_a_files_name_are_never_replaced(world: World) -> None:
    plan = world.export().next_plan(world.wanted())
    assert plan is not None
    world.export().do(world.wanted())
    [key, *_] = [each for each in world.objects() if each.endswith(".parquet")]
    other = World(world.golden, MemoryStore())
    other.place.put_if_absent(key, b"x" * len(world.place.get(key)))
    [failed, *_] = other.export().do(other.wanted()).not_exported
    assert isinstance(failed.error, CorruptData)
    assert "made something else" in str(failed.error)
    assert other.place.get(key).startswith(b"xxx")


def test_only_the_columns_asked_for_are_written_in_their_order(golden_log: Make) -> None:
    world = World(golden_log("zstd"), columns=("offset", "value"))
    world.export().do(world.wanted())
    assert {tuple(table.schema.names) for table in world.tables()} == {("offset", "value")}
    assert sum(table.num_rows for table in world.tables()) == log_digest(world)[0]


def test_readers_of_folders_are_shown_the_rows_alone(world: World) -> None:
    world.export().do(world.wanted())
    assert {key.split("/")[0] for key in world.objects()} == {"t", LEDGER}
    assert LEDGER.startswith("_")


def test_statistics_tell_the_offsets_and_times_of_each_row_group(world: World) -> None:
    world.export().do(world.wanted())
    for data in (data for key, data in world.objects().items() if key.endswith(".parquet")):
        file = pq.ParquetFile(io.BytesIO(data))
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number)
            group = file.metadata.row_group(number)
            for column in (group.column(at) for at in range(group.num_columns)):
                if column.path_in_schema in ("offset", "timestamp"):
                    values = rows.column(column.path_in_schema)
                    assert column.statistics.min == min(values.to_pylist())
                    assert column.statistics.max == max(values.to_pylist())


def test_repeated_values_are_in_dictionaries_and_others_plain(tmp_path: Path) -> None:
    schema = pa.schema([each for each in record_schema() if each.name in ("key", "value", "offset", "headers")])
    count = 20_000
    rows: dict[str, Any] = {
        "key": [b"%0200d" % at for at in range(count)],  # 4 MB of them, and a dictionary has one
        "value": [b"%0200d" % (at % 100) for at in range(count)],
        "offset": list(range(count)),
        "headers": [[("trace", b"1")]] * count,
    }
    with (tmp_path / "rows").open("wb") as file, writer_of(file, schema) as writer:
        writer.write_table(pa.table(rows, schema), row_group_size=count)
    group = pq.ParquetFile(tmp_path / "rows").metadata.row_group(0)
    sizes = {column.path_in_schema: column.total_uncompressed_size for column in map(group.column, range(5))}
    assert sizes["value"] < sizes["key"] / 50
    assert sizes["key"] < 1.3 * 200 * count, "given up: it is not written twice"
    assert sizes["headers.list.element.key"] < count
    assert sizes["offset"] < count


def test_records_of_hundreds_of_dates_open_one_file_at_a_time(
    golden_log: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, most = 0, 0

    class Counted(DescribedFile):
        def __init__(self, *arguments: Any) -> None:
            nonlocal opened, most
            opened += 1
            most = max(most, opened)
            super().__init__(*arguments)

        def close(self) -> None:
            nonlocal opened
            opened -= 1
            super().close()

    monkeypatch.setattr("tierstate.lake.export_task.DescribedFile", Counted)
    pairs = [(b"k", b"%d" % number) for number in range(450)]
    world = World(golden_log(path=folder_of(tmp_path / "log", pairs, apart_ms=86_400_000 // 2)), file_bytes=1 << 30)
    done = world.export().do(world.wanted())
    assert (done.tasks, done.records, most) == (1, 450, 1)
    assert done.files == len({key.split("/")[1] for key in world.objects() if key.endswith(".parquet")}) > 200
    assert world.digest() == log_digest(world)
    assert check(world.export()).findings == []
    world.place.delete(min(key for key in world.objects() if key.endswith(".parquet")))  # its records are not compared
    assert [each.problem for each in check(world.export()).findings] == ["the file is not there"]


class TestWhatMoves:
    """A task whose segments went while it was read is routed again."""

    def flaky(self, world: World, *errors: TierstateError) -> list[TierstateError]:
        left = list(errors)

        def run(jobs: Sequence[Job]) -> Iterator[tuple[int, Any]]:
            for job in jobs:
                if job.task.number == 1 and left:
                    yield 1, left.pop(0)
                else:
                    yield from world.here([job])

        done = world.export(run).do(world.wanted())
        assert not left
        return [each.error for each in done.not_exported]

    def test_twice_it_is_routed_again(self, world: World) -> None:
        lost = PlannedRangeLost("gone", start=1)
        assert self.flaky(world, lost, ObjectNotFound("gone")) == []
        assert world.digest() == log_digest(world)

    def test_the_third_time_its_error_is_raised_and_the_rest_exported(self, world: World) -> None:
        lost = PlannedRangeLost("gone for good")
        assert self.flaky(world, *[lost] * 3) == [lost]
        [plan] = world.ledger.plans()
        assert not world.ledger.is_whole(plan)
        assert sorted(world.ledger.done(plan)) == [task.number for task in plan.tasks if task.number != 1]

    def test_any_other_error_ends_it_at_once(self, world: World) -> None:
        with pytest.raises(StorageUnavailable):
            self.flaky(world, StorageUnavailable("away"), StorageUnavailable("away"))


def test_remaining_segments_are_kept_while_it_runs(world: World) -> None:
    world.export().do(world.wanted())
    assert world.kept[0] == {0: (0, world.end)}
    assert world.kept[-1] == {}


def test_progress_is_reported_in_remaining_offsets(world: World) -> None:
    world.dies_at = 3
    with pytest.raises(Killed):
        world.export().do(world.wanted())
    world.dies_at = None
    [plan] = world.ledger.plans()
    had = sum(plan.tasks[number].end - plan.tasks[number].start for number in world.ledger.done(plan))
    world.told.clear()
    world.export().do(world.wanted())
    [(label, total, done)] = world.told
    assert label == "exporting t"
    assert total == sum(done) == world.end - had
    assert 0 < had < world.end


def test_a_recreated_topic_is_not_mixed_with_the_old_one(world: World, golden_log: Make) -> None:
    plan = world.export().next_plan(world.wanted())
    assert plan is not None
    old = replace(plan, topic_id=TopicId.of(b"the-one-before!!"))
    with pytest.raises(InvalidRequest, match="made anew"):
        list(world.export().jobs(old, old.tasks))
