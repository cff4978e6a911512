"""Whatever is wrong with an export, the check finds it; a sound export has no findings."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.fetch.two_tiers import Golden
from tests.lake.exports import EVERY_COLUMN, World
from tierstate.lake.export_check import Checked, check
from tierstate.lake.export_ledger import document
from tierstate.lake.export_plan import ExportedFile, TaskDone
from tierstate.lake.export_task import sha256_of
from tierstate.lake.names import manifest_key, task_key
from tierstate.log.record_digest import RecordDigest
from tierstate.state.offsets import Offset
from tierstate.storage.memory import MemoryStore

Make = Callable[..., Golden]


@pytest.fixture
def world(golden_log: Make) -> World:
    golden = golden_log("transactions")
    golden.local.local_start = golden.folder.bases[-1] - 3
    made = World(golden)
    made.export().do(made.wanted())
    return made


def checked(world: World) -> Checked:
    return check(world.export())


def problems(world: World) -> list[str]:
    return [each.problem for each in checked(world).findings]


def with_object(world: World, key: str, data: bytes | None) -> World:
    """Return a copy of the place in which one object has this content; None leaves it out."""
    other = World(world.golden, MemoryStore(), columns=world.shape.columns.names)
    for each, before in world.objects().items():
        if (content := data if each == key else before) is not None:
            other.place.put_if_absent(each, content)
    return other


def a_file(world: World) -> tuple[TaskDone, ExportedFile]:
    [plan] = world.ledger.plans()
    done = world.ledger.done(plan)[1]
    return done, done.files[0]


Groups = list[pa.Table]


def rewritten(world: World, change: Callable[[Groups], Groups]) -> World:
    """Return the place with other rows in one file, and a ledger that agrees with them: only the log differs."""
    [plan] = world.ledger.plans()
    done, file = a_file(world)
    read = pq.ParquetFile(io.BytesIO(world.place.get(file.key)))
    into = io.BytesIO()
    with pq.ParquetWriter(into, read.schema_arrow) as writer:
        for group in change([read.read_row_group(number) for number in range(read.num_row_groups)]):
            writer.write_table(group)
    other = with_object(world, file.key, into.getvalue())
    size, sha256 = sha256_of(other.place, file.key)
    claim = replace(done, files=(replace(file, bytes=size, sha256=sha256),))
    return with_object(other, task_key(plan, 1), document(claim.as_json()))


def other_value(groups: Groups) -> Groups:
    values = pc.binary_replace_slice(groups[-1]["value"], 0, 1, b"~")
    at = groups[-1].schema.get_field_index("value")
    return [*groups[:-1], groups[-1].set_column(at, "value", values)]


@pytest.mark.parametrize("columns", [EVERY_COLUMN, ("value", "offset"), ("partition",)])
def test_a_whole_export_has_no_findings_whatever_its_columns(golden_log: Make, columns: tuple[str, ...]) -> None:
    world = World(golden_log("transactions"), columns=columns)
    done = world.export().do(world.wanted())
    report = checked(world)
    assert report.findings == []
    assert (report.records, report.files) == (done.records, done.files)


def test_a_file_that_is_gone_cut_or_changed_is_named(world: World) -> None:
    _, file = a_file(world)
    data = world.place.get(file.key)
    assert problems(with_object(world, file.key, None)) == ["the file is not there"]
    assert problems(with_object(world, file.key, data[:-1])) == [f"the file has {len(data) - 1} bytes, not {len(data)}"]
    flipped = bytes([data[0] ^ 1]) + data[1:]
    assert problems(with_object(world, file.key, flipped)) == [
        "the file's bytes are not those that were written (SHA-256)"
    ]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda groups: [groups[0].slice(1), *groups[1:]], "1 record of the log is no row"),
        (
            lambda groups: [*groups[:-1], pa.concat_tables([groups[-1], groups[-1].slice(0, 1)])],
            "1 row is no record of the log",
        ),
        (lambda groups: [*groups[:-2], groups[-1], groups[-2]], r"\d+ records of the log are no rows"),
        (
            lambda groups: [
                pa.concat_tables([groups[0].slice(1, 1), groups[0].slice(0, 1), groups[0].slice(2)]),
                *groups[1:],
            ],
            "rows are not in the order of the log",
        ),
        (other_value, "the column value is not the log's"),
        (lambda groups: groups[:-1], r"\d+ records of the log are no rows"),
        (lambda groups: [*groups, groups[-1]], r"\d+ rows are no records of the log"),
    ],
)
def test_rows_that_are_not_the_logs_are_found_though_the_ledger_vouches_for_them(
    world: World, change: Callable[[Groups], Groups], problem: str
) -> None:
    _, file = a_file(world)
    [finding] = checked(rewritten(world, change)).findings
    assert finding.key == file.key
    assert re.fullmatch(problem, finding.problem)


def test_a_digest_that_is_not_the_logs_is_found(world: World) -> None:
    [plan] = world.ledger.plans()
    done, file = a_file(world)
    claim = replace(done, files=(replace(file, digest="0" * 64), *done.files[1:]))
    other = with_object(world, task_key(plan, 1), document(claim.as_json()))
    assert problems(other) == ["the record digest of the manifest is not that of the log"]


def test_records_of_the_log_that_no_file_has_are_found(world: World) -> None:
    [plan] = world.ledger.plans()
    other = with_object(world, task_key(plan, 1), document(TaskDone(1, ()).as_json()))
    [finding] = checked(other).findings
    assert re.fullmatch(r"\d+ records of the log are no rows", finding.problem)
    assert finding.key == a_file(world)[1].key


def test_several_files_of_a_date_as_earlier_versions_made_them_are_compared(world: World) -> None:
    """Each has a digest of its own, and rows that neither has are found."""
    [plan] = world.ledger.plans()
    done, file = a_file(world)
    read = pq.ParquetFile(io.BytesIO(world.place.get(file.key)))
    groups = [read.read_row_group(number) for number in range(read.num_row_groups)]
    again = file.key.replace(".parquet", "+1.parquet")
    place = World(world.golden).place
    for key, before in world.objects().items():
        if key not in (file.key, task_key(plan, 1)):
            place.put_if_absent(key, before)
    parts = []
    for key, part in ((file.key, groups[:1]), (again, groups[1:])):
        rows, into, digest = pa.concat_tables(part), io.BytesIO(), RecordDigest()
        pq.write_table(rows, into)
        place.put_if_absent(key, into.getvalue())
        digest.update(rows)
        size, sha256 = sha256_of(place, key)
        first, last = (rows["offset"][at].as_py() for at in (0, -1))
        claim = replace(file, key=key, first_offset=first, last_offset=last, bytes=size, sha256=sha256)
        parts.append(replace(claim, records=digest.count, digest=digest.hexdigest()))
    whole = World(world.golden, place)
    named = replace(done, files=(*parts, *done.files[1:]))
    whole.place.put_if_absent(task_key(plan, 1), document(named.as_json()))
    assert problems(whole) == []
    lacking = with_object(whole, task_key(plan, 1), document(replace(named, files=named.files[1:]).as_json()))
    assert [re.sub(r"\d+", "N", each) for each in problems(lacking)] == ["N records of the log are no rows"]
    other = replace(parts[1], digest="0" * 64)
    claimed = with_object(whole, task_key(plan, 1), document(replace(named, files=(parts[0], other)).as_json()))
    assert [each.key for each in checked(claimed).findings] == [again]


def test_a_file_of_a_date_of_which_the_log_has_no_record_is_found(world: World) -> None:
    [plan] = world.ledger.plans()
    done, file = a_file(world)
    claim = replace(done, files=(*done.files, replace(file, date="1999-01-01")))
    [finding] = checked(with_object(world, task_key(plan, 1), document(claim.as_json()))).findings
    assert (finding.key, finding.offset) == (file.key, file.first_offset)
    assert re.fullmatch(r"\d+ rows are no records of the log", finding.problem)


def test_an_unfinished_export_is_reported(world: World) -> None:
    [plan] = world.ledger.plans()
    assert problems(with_object(world, manifest_key(plan), None)) == [
        "the export was not finished: run it again",
    ]


def test_lost_records_are_checked_by_the_bytes_of_their_file(world: World) -> None:
    [plan] = world.ledger.plans()
    world.golden.tiers.start_log_at(plan.tasks[1].start)
    world.golden.tiers.view.require_fresh(0, 0)
    report = checked(world)
    assert report.findings == []
    assert report.by_bytes == len(world.ledger.done(plan)[0].files)
    first = world.ledger.done(plan)[0].files[0]
    assert problems(with_object(world, first.key, b"")) == [f"the file has 0 bytes, not {first.bytes}"]


def cut_in(world: World, task: int) -> int:
    """Let the log begin in the middle of a task's only file. Returns the new start."""
    [plan] = world.ledger.plans()
    [file] = world.ledger.done(plan)[task].files
    start = Offset((file.first_offset + file.last_offset) // 2)
    world.golden.tiers.start_log_at(start)
    world.golden.tiers.view.require_fresh(0, 0)
    return start


def test_remaining_records_of_a_cut_file_are_compared_and_counted(world: World) -> None:
    start = cut_in(world, 1)
    [plan] = world.ledger.plans()
    done, read = world.ledger.done(plan), pq.read_table(io.BytesIO(world.place.get(a_file(world)[1].key)))
    left = pc.sum(pc.greater_equal(read["offset"], start)).as_py()
    report = checked(world)
    assert (report.findings, report.by_bytes) == ([], len(done[0].files))
    assert report.lost == done[0].records + done[1].records - left
    assert report.records == left + sum(each.records for number, each in done.items() if number > 1)
    assert 0 < left < done[1].records


def test_a_cut_file_without_offsets_is_checked_by_its_bytes_alone(golden_log: Make) -> None:
    golden = golden_log("transactions")
    golden.local.local_start = golden.folder.bases[-1] - 3
    world = World(golden, columns=("key", "value"))
    world.export().do(world.wanted())
    cut_in(world, 1)
    [plan] = world.ledger.plans()
    done = world.ledger.done(plan)
    report = checked(world)
    assert (report.findings, report.by_bytes) == ([], len(done[0].files) + len(done[1].files))
    assert report.lost == done[0].records + done[1].records


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (other_value, "the column value is not the log's"),
        (
            lambda groups: [*groups[:-1], groups[-1].slice(0, len(groups[-1]) - 1)],
            "1 record of the log is no row",
        ),
    ],
)
def test_other_rows_are_found_in_what_is_left_of_a_file(
    world: World, change: Callable[[Groups], Groups], problem: str
) -> None:
    cut_in(world, 1)
    assert problems(rewritten(world, change)) == [problem]


def test_a_row_that_the_log_never_had_is_found_in_what_is_left_of_a_file(world: World) -> None:
    cut_in(world, 1)
    twice = rewritten(world, lambda groups: [*groups, groups[-1].slice(len(groups[-1]) - 1)])
    assert problems(twice) == ["1 row is no record of the log"]


def test_a_damaged_file_of_a_cut_task_is_reported_once(world: World) -> None:
    cut_in(world, 1)
    file = a_file(world)[1]
    assert problems(with_object(world, file.key, b"")) == [f"the file has 0 bytes, not {file.bytes}"]


def test_a_task_whose_log_begins_before_its_first_record_is_compared(golden_log: Make) -> None:
    """The lost offsets had no visible record: the file lacks nothing, and its name has the earlier start."""
    world = World(golden_log("transactions"))
    world.export().do(world.wanted())
    [plan] = world.ledger.plans()
    done = world.ledger.done(plan)
    first = {number: min((file.first_offset for file in each.files), default=0) for number, each in done.items()}
    [task, *_] = [task for task in plan.tasks if task.start < first[task.number] - 1]
    world.golden.tiers.start_log_at(task.start + 1)
    world.golden.tiers.view.require_fresh(0, 0)
    report = checked(world)
    assert report.findings == []
    assert report.records == sum(each.records for number, each in done.items() if number >= task.number)
