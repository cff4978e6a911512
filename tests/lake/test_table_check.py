"""Whatever is wrong with a table, the check finds it; a sound table has no findings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.fetch.two_tiers import Golden
from tests.lake.tables import TableWorld
from tests.lake.test_table_history import delete_below, unclean_election
from tierstate.lake.table_check import CheckedTable, check_table
from tierstate.lake.table_files import partitions_of
from tierstate.runtime.operation import run
from tierstate.state.errors import CorruptData
from tierstate.state.offsets import Offset
from tierstate.state.routing import Isolation

pytestmark = pytest.mark.extended

Make = Callable[..., Golden]


@pytest.fixture
def world(golden_log: Make, tmp_path: Path) -> TableWorld:
    made = TableWorld(golden_log("transactions"), tmp_path)
    made.follow()
    return made


def checked(world: TableWorld) -> CheckedTable:
    return check_table(world.table(), world.log(), window_bytes=30_000)


def problems(world: TableWorld) -> list[tuple[str, int | None]]:
    return [(each.problem, each.offset) for each in checked(world).findings]


def change(world: TableWorld, make: Callable[[pa.Table], pa.Table], first: int, last: int) -> None:
    """Replace the files with these offsets, as another engine would; ``make`` gets their rows."""
    table, attempt = world.table(), "strange"
    files = table.data_files(f"offset >= {first} and offset <= {last}")
    rows = [pq.read_table(each.file_path.removeprefix("file://")) for each in files]
    inside = [pc.and_(pc.greater_equal(each["offset"], first), pc.less_equal(each["offset"], last)) for each in rows]
    new = [
        pa.concat_tables([each.filter(pc.invert(at)), make(each.filter(at))])
        for each, at in zip(rows, inside, strict=True)
    ]
    added = []
    for number, (file, each) in enumerate(zip(files, new, strict=True)):
        into = pa.BufferOutputStream()
        pq.write_table(each.cast(table.schema), into)
        partition = tuple(file.partition[at] for at in range(len(file.partition)))
        added.append(table.put(table.url(f"{attempt}-{number}.parquet"), [into.getvalue().to_pybytes()], partition))
    with table.iceberg.transaction() as transaction, transaction.update_snapshot().overwrite() as snapshot:
        for file, other in zip(files, added, strict=True):
            snapshot.delete_data_file(file)
            snapshot.append_data_file(other)


@pytest.mark.parametrize("isolation", Isolation)
def test_a_table_that_is_its_log_has_its_digest(golden_log: Make, tmp_path: Path, isolation: Isolation) -> None:
    world = TableWorld(golden_log("transactions"), tmp_path, isolation=isolation)
    world.follow()
    done = checked(world)
    assert not done.findings
    [only] = done.partitions
    assert (only.rows, only.digest) == world.log_digest()


def test_rows_whose_records_the_log_deleted_are_counted_and_not_compared(golden_log: Make, tmp_path: Path) -> None:
    world = TableWorld(golden_log("transactions"), tmp_path, keep=True)
    world.follow()
    whole = world.rows().num_rows
    delete_below(world, 777)
    done = checked(world)
    assert not done.findings
    [only] = done.partitions
    assert (only.rows, only.digest) == world.log_digest()
    assert only.older == whole - only.rows > 0


@pytest.mark.essential
def test_a_row_that_is_missing_is_found(world: TableWorld) -> None:
    first = world.first_offset()
    change(world, lambda rows: rows.slice(1), first, first)
    assert problems(world) == [("1 record of the log is no row", first)]


def test_a_row_that_is_there_twice_is_found(world: TableWorld) -> None:
    first = world.first_offset()
    change(world, lambda rows: pa.concat_tables([rows, rows]), first, first)
    assert problems(world) == [("1 row is there again", first)]


def test_a_value_that_differs_is_found(world: TableWorld) -> None:
    def other(rows: pa.Table) -> pa.Table:
        at = rows.schema.get_field_index("value")
        return rows.set_column(at, rows.field(at), pa.array([b"forged"] * rows.num_rows, rows.field(at).type))

    change(world, other, 300, 310)
    [(problem, offset)] = problems(world)
    assert problem == "the column value is not the log's"
    assert offset is not None
    assert 300 <= offset <= 310


def also_of_partition_7(row: pa.Table) -> pa.Table:
    at = row.schema.get_field_index("partition")
    return pa.concat_tables([row, row.set_column(at, "partition", pa.array([7], pa.int32()))])


def test_a_file_of_several_partitions_is_read_for_their_offsets(world: TableWorld) -> None:
    first = Offset(world.first_offset())
    change(world, also_of_partition_7, first, first)
    table = world.table()
    [file] = [each for each in table.data_files() if table.extent_of(each) is None]
    extents = partitions_of(table, file)
    assert extents[0].start == first
    assert extents[7] == (first, first + 1)


@pytest.mark.extended
def test_a_row_that_no_place_names_is_found(world: TableWorld) -> None:
    change(world, also_of_partition_7, world.first_offset(), world.first_offset())
    assert problems(world) == [("1 row is outside of what the table's place says", None)]


def test_rows_of_a_branch_that_the_log_lost_are_found(world: TableWorld) -> None:
    unclean_election(world, 99, 1500)
    assert problems(world)[0][0] == "the log ends at 1500, and the table has rows up to 2042"


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_file_that_is_missing_or_damaged_is_named(world: TableWorld, how: str) -> None:
    file = Path(sorted(world.named_files())[0])
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(bytes(len(file.read_bytes())))
    done = checked(world)
    [finding] = done.findings
    assert f"a file of the table is {how}" in finding.problem
    assert file.name in finding.problem
    assert isinstance(done.errors[0], CorruptData)


@pytest.mark.parametrize("commits", [0, 1])
def test_records_that_the_table_lacks_are_counted(golden_log: Make, tmp_path: Path, commits: int) -> None:
    world = TableWorld(golden_log("transactions"), tmp_path)
    for _ in range(commits):
        run(world.round())
    end = world.table().place().partitions[0].end if commits else 0
    done = checked(world)
    assert not done.findings
    assert done.behind == world.log().extent(0)[1] - end > 0
    world.follow()
    assert checked(world).behind == 0
