"""Fields of records as `consume --format` prints them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.log.batches import TIME, Batch, record
from tierstate.log.decode import decode_batches
from tierstate.log.text_columns import FIELDS, printed, slices

DATA = st.binary(max_size=6) | st.none()
ROWS = st.lists(
    st.tuples(DATA, DATA, st.lists(st.tuples(st.text("nß", max_size=3), DATA), max_size=3)), min_size=1, max_size=8
)


def by_hand(row: tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]], offset: int) -> bytes:
    key, value, headers = row
    shown = b",".join(name.encode() + b"=" + (b"NULL" if data is None else data) for name, data in headers)
    return b"|".join([b"t", b"3", b"%d" % offset, key or b"", value or b"", b"%d" % TIME, shown]) + b"\n"


@given(ROWS, st.integers(0, 3))
def test_every_field_of_every_row_is_printed_where_it_stands(
    rows: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]], skipped: int
) -> None:
    records = [
        record(number, key, value, [(name.encode(), data) for name, data in headers])
        for number, (key, value, headers) in enumerate(rows)
    ]
    (batch,) = decode_batches(Batch(40, records).bytes, source="f", topic="t", partition=3, milliseconds=True)
    taken = batch.slice(skipped)
    columns = [column for letter in "tpoksTh" for column in (FIELDS[letter](taken), b"|")]
    expected = [by_hand(row, 40 + number) for number, row in enumerate(rows)][skipped:]
    assert printed([*columns[:-1], b"\n"]) == b"".join(expected)


def test_large_records_are_printed_few_at_a_time() -> None:
    (batch,) = decode_batches(
        Batch(0, [record(number, None, bytes(600_000)) for number in range(4)]).bytes,
        source="f",
        topic="t",
        partition=0,
    )
    assert [rows.num_rows for rows in slices(batch)] == [1, 1, 1, 1]
