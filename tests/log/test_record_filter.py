"""A filter finds exactly the records that have the bytes, in whatever batches they lie."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.log.batches import NONE, TIME, ZSTD, Batch, block_rows, record
from tierstate.log.decode import decode_records
from tierstate.log.record_block import RecordFilter

# few letters, so that a search often begins to match and seldom goes on
BYTES = st.lists(st.sampled_from(b"ab\0"), max_size=9).map(bytes)
PART = st.none() | BYTES
HEADERS = st.lists(st.tuples(BYTES, PART), max_size=3)
RECORDS = st.lists(st.tuples(PART, PART, HEADERS), min_size=1, max_size=12)


def batch(records: Any, codec: int) -> bytes:
    made = [record(at, key, value, headers=headers) for at, (key, value, headers) in enumerate(records)]
    return Batch(0, made, codec, time=TIME).bytes


@given(RECORDS, st.none() | BYTES, st.none() | BYTES.filter(bool), st.sampled_from([NONE, ZSTD]))
def test_a_filter_finds_what_python_finds(records: Any, key: bytes | None, contains: bytes | None, codec: int) -> None:
    (block,) = decode_records(batch(records, codec), source="t")
    rows = block_rows(block)
    expected = [
        row
        for row, (its, value, headers) in zip(rows, records, strict=True)
        if (key is None or its == key)
        and (
            contains is None
            or any(
                contains in part
                for part in (its, value, *(each for header in headers for each in header))
                if part is not None
            )
        )
    ]
    assert block_rows(RecordFilter(key, contains).of(block)) == expected


def test_a_text_that_repeats_its_own_beginning_is_found() -> None:
    values = [bytes(each) for size in range(7) for each in product(b"ab", repeat=size)]
    (block,) = decode_records(batch([(None, value, []) for value in values], NONE), source="t")
    for contains in filter(None, values):
        offsets_read = RecordFilter(contains=contains).of(block).offsets.tolist()
        assert offsets_read == [at for at, value in enumerate(values) if contains in value], contains


@given(RECORDS, st.data())
def test_some_records_of_a_block_are_those_records(records: Any, data: st.DataObject) -> None:
    (block,) = decode_records(batch(records, NONE), source="t")
    count = data.draw(st.integers(0, len(records)))
    assert block_rows(block.only(slice(count))) == block_rows(block)[:count]


def test_searched_bytes_are_counted_as_they_are_unpacked() -> None:
    counts = [0, 0]

    def looked(count: int, size: int) -> None:
        counts[0] += count
        counts[1] += size

    packed = batch([(b"k", bytes(100_000), [])] * 3, ZSTD)
    list(decode_records(packed, source="t", looked=looked))
    assert counts[0] == 3
    assert 300_000 < counts[1] < 300_200
