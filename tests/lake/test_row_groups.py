"""Where row groups end follows from the records alone."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tierstate.lake.parquet import by_date, record_sizes, row_groups
from tierstate.log.record_columns import record_schema

DAY_MS = 86_400_000
bytes_or_null = st.none() | st.binary(max_size=40)
headers = st.none() | st.lists(st.tuples(st.text(max_size=5), bytes_or_null), min_size=1, max_size=3)
records = st.lists(
    st.tuples(bytes_or_null, bytes_or_null, st.integers(-DAY_MS, 3 * DAY_MS), headers), min_size=1, max_size=60
)


def batch_of(
    rows: list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]] | None]],
) -> pa.RecordBatch:
    schema = record_schema()
    columns = {
        "key": [key for key, _, _, _ in rows],
        "value": [value for _, value, _, _ in rows],
        "topic": ["t"] * len(rows),
        "partition": [0] * len(rows),
        "offset": list(range(len(rows))),
        "timestamp": [at * 1000 for _, _, at, _ in rows],
        "timestampType": [0] * len(rows),
        "headers": [
            None if each is None else [{"key": name, "value": value} for name, value in each] for *_, each in rows
        ],
    }
    arrays = [
        pa.array(columns[field.name], pa.int64()).cast(field.type)
        if field.name == "timestamp"
        else pa.array(columns[field.name], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def cut(batch: pa.RecordBatch, at: list[int]) -> list[pa.RecordBatch]:
    borders = sorted({0, batch.num_rows, *(each % (batch.num_rows + 1) for each in at)})
    return [batch.slice(first, last - first) for first, last in pairwise(borders)]


@given(records, st.lists(st.integers(0, 60), max_size=6), st.integers(1, 800))
def test_groups_are_the_same_however_records_come_in_batches(
    rows: list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]] | None]],
    at: list[int],
    group_bytes: int,
) -> None:
    whole = batch_of(rows)
    groups = list(row_groups([whole], group_bytes))
    assert list(row_groups(cut(whole, at), group_bytes)) == groups
    assert pa.concat_tables(groups) == pa.Table.from_batches([whole])
    assert all(column.num_chunks == 1 for group in groups for column in group.columns)


@given(records, st.integers(1, 800))
def test_a_group_ends_with_the_record_that_fills_it(
    rows: list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]] | None]], group_bytes: int
) -> None:
    whole = batch_of(rows)
    expected = [
        32
        + len(key or b"")
        + len(value or b"")
        + sum(16 + len(name.encode()) + len(count or b"") for name, count in each or ())
        for key, value, _, each in rows
    ]
    assert record_sizes(whole).tolist() == expected
    sizes = [record_sizes(group.to_batches()[0]).tolist() for group in row_groups([whole], group_bytes)]
    assert all(sum(each) >= group_bytes for each in sizes[:-1])
    assert all(sum(each[:-1]) < group_bytes for each in sizes)


@given(records)
def test_each_day_has_its_records_in_their_order(
    rows: list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]] | None]],
) -> None:
    [group] = row_groups([batch_of(rows)], 1 << 30)
    days = by_date(group)
    assert [day for day, _ in days] == sorted({at // DAY_MS for _, _, at, _ in rows})
    for day, table in days:
        assert table.column("offset").to_pylist() == [at for at, row in enumerate(rows) if row[2] // DAY_MS == day]
