"""A record whose time a table cannot have becomes a row, with a documented time and a mark, and ends no table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.fetch.two_tiers import Golden
from tests.lake.tables import BYTES, TableWorld
from tests.lake.typed_tables import columns_of
from tests.log.batches import ZSTD, Batch, record
from tierstate.lake.columns import Columns
from tierstate.lake.table_check import check_table

Make = Callable[..., Golden]
FIRST = datetime(1, 1, 1, microsecond=1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
EARLIEST_MS, LATEST_MS = -62_135_596_800_000, 253_402_300_799_999
TIMES = {-(2**63): FIRST, EARLIEST_MS - 1: FIRST, LATEST_MS + 1: LAST, 2**62: LAST, 2**63 - 1: LAST}
"""Kafka's milliseconds, and the time that a table has for them."""
FITS = (EARLIEST_MS, 1_000, LATEST_MS)


def world_of(make: Make, path: Path, columns: Columns) -> TableWorld:
    (path / "topic").mkdir()
    (path / "topic" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    times = [*TIMES, *FITS]
    batches = [Batch(at, [record(0, b"k", b'{"id": %d}' % at)], ZSTD, time=time).bytes for at, time in enumerate(times)]
    for at, batch in enumerate(batches):
        (path / "topic" / f"{at:020d}.log").write_bytes(batch)
    world = TableWorld(make(path=path / "topic"), path / "table", columns=columns)
    world.follow()
    return world


@pytest.mark.parametrize("columns", [BYTES, columns_of("id int")], ids=["bytes", "typed"])
def test_a_record_of_any_time_is_a_row(golden_log: Make, tmp_path: Path, columns: Columns) -> None:
    world = world_of(golden_log, tmp_path, columns)
    rows = world.rows().to_pylist()
    assert [row["timestamp"] for row in rows[: len(TIMES)]] == list(TIMES.values())
    assert [round(row["timestamp"].timestamp() * 1000) for row in rows[len(TIMES) :]] == list(FITS)
    done = check_table(world.table(), world.log())
    assert not done.findings
    assert done.partitions[0].digest == "", "the digest of the log is over the times that the table has not"


def test_such_a_row_of_a_typed_table_is_marked_and_keeps_its_value(golden_log: Make, tmp_path: Path) -> None:
    world = world_of(golden_log, tmp_path, columns_of("id int"))
    rows = world.rows().to_pylist()
    nothing = {"key": None, "value": None}
    assert [row["_corrupt"] for row in rows] == [nothing] * len(TIMES) + [None] * len(FITS)
    assert [row["value"]["id"] for row in rows] == list(range(len(rows)))
    assert check_table(world.table(), world.log()).partitions[0].corrupt == len(TIMES)
