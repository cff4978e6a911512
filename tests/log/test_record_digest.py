"""The digest equals its definition in docs, however records arrive."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.batches import (
    CASES,
    TIME,
    Batch,
    Row,
    arrow_rows,
    block_rows,
    blocks_of,
    golden_folder,
    golden_rows,
    plain_batch,
    record,
)
from tests.plain_digest import PlainDigest
from tierstate.log.decode import decode_batches, decode_records
from tierstate.log.folder import open_log
from tierstate.log.record_columns import RECORD_SCHEMA
from tierstate.log.record_digest import RangeDigests, RecordDigest, topic_digest
from tierstate.state.errors import InvalidRequest

NO_HEADERS = [name for name in RECORD_SCHEMA.names if name != "headers"]


def by_definition(rows: Iterable[Row]) -> str:
    return PlainDigest(rows).hexdigest()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("case", CASES)
def test_a_golden_folders_digest_is_the_consumers(case: str, isolation: str) -> None:
    rows = golden_rows(case, isolation)
    digest = RecordDigest()
    for block in blocks_of(open_log(golden_folder(case).path), committed=isolation == "read_committed"):
        digest.update(block)
    assert (digest.count, digest.hexdigest()) == (len(rows), by_definition(rows))


@pytest.mark.parametrize("case", ["none", "transactions", "appendtime", "lz4"])
def test_blocks_arrow_and_plain_records_give_one_number(case: str) -> None:
    folder = golden_folder(case)
    data = b"".join(folder.log_path(base).read_bytes() for base in folder.base_offsets)
    arrow = list(decode_batches(data, source="f", topic="t", partition=0))
    rows = golden_rows(case, "read_uncommitted")
    expected = by_definition(rows)
    assert by_definition(row for batch in arrow for row in arrow_rows(batch)) == expected
    one, two, three = (RecordDigest() for _ in range(3))
    for batch in arrow:
        one.update(batch)
        for start in range(0, batch.num_rows, 7):
            two.update(batch.slice(start, 7))
    three.update(pa.Table.from_batches(arrow))
    assert [each.hexdigest() for each in (one, two, three)] == [expected] * 3


def test_the_bytes_are_those_of_the_definition() -> None:
    data = Batch(5, [record(0, b"k", None, [(b"n", None), (b"n", b"")]), record(1, None, b"")]).bytes
    first = struct.pack(">qqb", 5, TIME, 0) + b"\0\0\0\1k" + b"\xff" * 4 + b"\0\0\0\2"
    first += b"\0\0\0\1n" + b"\xff" * 4 + b"\0\0\0\1n" + b"\0\0\0\0"
    second = struct.pack(">qqb", 6, TIME, 0) + b"\xff" * 4 + b"\0\0\0\0" + b"\0\0\0\0"
    digest = RecordDigest()
    for block in decode_records(data, source="f"):
        digest.update(block)
    assert digest.hexdigest() == hashlib.sha256(first + second).hexdigest()
    assert RecordDigest().hexdigest() == hashlib.sha256(b"").hexdigest()


def test_a_header_name_that_is_not_utf8_counts_as_every_reader_sees_it() -> None:
    data = Batch(0, [record(0, b"k", b"v", [(b"\xff", b"x"), (b"ok", b"y")])]).bytes
    blocks = list(decode_records(data, source="f"))
    one, two = RecordDigest(), RecordDigest()
    one.update(blocks[0])
    for batch in decode_batches(data, source="f", topic="t", partition=0):
        two.update(batch)
    assert one.hexdigest() == two.hexdigest() == by_definition(block_rows(blocks[0]))


@given(st.lists(st.integers(0, 2300), min_size=1, max_size=6).map(sorted))
@settings(max_examples=40)
def test_ranges_in_one_pass_equal_ranges_one_by_one(boundaries: list[int]) -> None:
    rows = golden_rows("transactions", "read_uncommitted")
    folder = golden_folder("transactions")
    blocks, batches = (RangeDigests(list(pairwise(boundaries))) for _ in range(2))
    for base in folder.base_offsets:
        data = folder.log_path(base).read_bytes()
        for block in decode_records(data, source="f"):
            blocks.update(block)
        for batch in decode_batches(data, source="f", topic="t", partition=0):
            batches.update(batch)
    assert blocks.whole.hexdigest() == batches.whole.hexdigest() == by_definition(rows)
    for (start, end), part, other in zip(blocks.ranges, blocks.parts, batches.parts, strict=True):
        inside = [row for row in rows if start <= row[0] < end]
        assert part.count == other.count == len(inside)
        assert part.hexdigest() == other.hexdigest() == by_definition(inside)


def test_records_out_of_order_or_twice_are_refused() -> None:
    (block,) = decode_records(plain_batch(10), source="f")
    digest = RecordDigest()
    digest.update(block)
    for again in (9, 10, 12):
        (late,) = decode_records(plain_batch(again), source="f")
        with pytest.raises(InvalidRequest, match="not in offset order"):
            digest.update(late)
    (next_block,) = decode_records(plain_batch(13), source="f")
    digest.update(next_block)
    (batch,) = decode_batches(plain_batch(0), source="f", topic="t", partition=0)
    with pytest.raises(InvalidRequest, match="not in offset order"):
        RecordDigest().update(batch.take(pa.array([1, 0])))


def test_rows_without_headers_as_a_column_are_refused() -> None:
    (batch,) = decode_batches(plain_batch(0), source="f", topic="t", partition=0, columns=NO_HEADERS)
    with pytest.raises(InvalidRequest, match="every column"):
        RecordDigest().update(batch)


def test_rows_of_wider_types_give_the_same_number() -> None:
    (batch,) = decode_batches(plain_batch(0), source="f", topic="t", partition=0)
    wide = batch.cast(
        pa.schema([pa.field(f.name, pa.large_binary() if f.type == pa.binary() else f.type) for f in batch.schema])
    )
    one, two = RecordDigest(), RecordDigest()
    one.update(batch)
    two.update(wide)
    assert one.hexdigest() == two.hexdigest()


def test_a_topics_digest_goes_by_partition_number() -> None:
    one, two = hashlib.sha256(b"1").digest(), hashlib.sha256(b"2").digest()
    expected = hashlib.sha256(struct.pack(">iq", 1, 10) + one + struct.pack(">iq", 12, 20) + two).hexdigest()
    assert topic_digest({12: (20, two), 1: (10, one)}) == expected
