"""Promises of decoding beyond the golden folders: mixtures, bounds, columns, isolation, odd names and times."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.batches import (
    LZ4,
    SNAPPY,
    TIME,
    ZSTD,
    Batch,
    Row,
    block_rows,
    marker,
    plain_batch,
    record,
    xerial,
)
from tierstate.log.batch import TRANSACTIONAL, iter_batches
from tierstate.log.decode import PIECE_BYTES, RECORD_SCHEMA, decode_batches, decode_records, record_schema
from tierstate.log.isolation import AbortFilter
from tierstate.log.json_lines import block_lines, json_lines
from tierstate.log.kernels import KEY_AT
from tierstate.log.record_parts import parts_of
from tierstate.state.errors import InvalidRequest
from tierstate.state.offsets import Offset
from tierstate.state.segment import AbortedRange

APPEND_TIME = 8


def decode(data: bytes | bytearray | memoryview[int], **options: Any) -> list[Row]:
    blocks = decode_records(data, source="f", **options)
    return [row for block in blocks for row in block_rows(block)]


def aborted(producer: int, first: int, last: int) -> AbortedRange:
    return AbortedRange(producer, Offset(first), Offset(last))


Parts = tuple[bytes | None, bytes | None, list[tuple[bytes, bytes | None]], int]
optional = st.none() | st.binary(max_size=200)
header = st.tuples(st.text(max_size=8).map(str.encode), optional)
parts = st.tuples(optional, optional, st.lists(header, max_size=3), st.integers(-(2**40), 2**40))


@given(st.lists(st.tuples(st.integers(0, 4), st.lists(parts, min_size=1, max_size=8)), max_size=8))
@settings(max_examples=150)
def test_batches_of_any_codec_in_any_order_come_back(log: list[tuple[int, list[Parts]]]) -> None:
    data, base = b"", 10
    expected: list[Row] = []
    for codec, records in log:
        encoded = []
        for delta, (key, value, headers, time) in enumerate(records):
            encoded.append(record(delta, key, value, headers, time))
            named = tuple((name.decode(), content) for name, content in headers)
            expected.append((base + delta, TIME + time, 0, key, value, named))
        data += Batch(base, encoded, codec).bytes
        base += len(records) + 1
    assert decode(data) == expected
    arrow = list(decode_batches(data, source="f", topic="t", partition=1, milliseconds=True))
    for batch in arrow:
        batch.validate(full=True)
    table = pa.Table.from_batches(arrow, RECORD_SCHEMA)
    assert table.column("key").to_pylist() == [row[3] for row in expected]
    assert table.column("value").to_pylist() == [row[4] for row in expected]
    assert table.column("offset").to_pylist() == [row[0] for row in expected]


def test_blocks_stay_good_after_the_next_one_is_asked_for() -> None:
    big = b"x" * (PIECE_BYTES // 2)
    data = b"".join(Batch(base, [record(0, b"%d" % base, big)], ZSTD).bytes for base in range(12))
    blocks = list(decode_records(data, source="f"))
    assert len(blocks) > 3
    assert [row[3] for block in blocks for row in block_rows(block)] == [b"%d" % base for base in range(12)]
    batches = list(decode_batches(data, source="f", topic="t", partition=0))
    assert [key for batch in batches for key in batch.column("key").to_pylist()] == [b"%d" % b for b in range(12)]


def test_pieces_are_about_a_mebibyte_however_batches_lie() -> None:
    for codec in (0, LZ4):
        data = b"".join(Batch(base, [record(0, None, b"v" * 10_000)], codec).bytes for base in range(1000))
        sizes = [batch.nbytes for batch in decode_batches(data, source="f", topic="t", partition=0)]
        assert sum(sizes) > 10_000_000
        assert max(sizes) < 2 * PIECE_BYTES
        assert len(sizes) < 15


def test_views_and_bytearrays_decode_as_bytes_do() -> None:
    data = plain_batch(0, 5, ZSTD) + plain_batch(5, 5)
    expected = decode(data)
    assert decode(bytearray(data)) == expected
    assert decode(memoryview(b"xx" + data)[2:]) == expected
    assert decode(b"") == []


def test_snappy_of_both_clients_is_read() -> None:
    records = b"".join(record(at, b"k", b"value" * 100) for at in range(200))
    rows = decode(Batch(0, (), SNAPPY, payload=xerial(records), count=200).bytes)
    assert [row[0] for row in rows] == list(range(200))


def test_control_batches_never_show() -> None:
    assert [row[0] for row in decode(plain_batch(0) + marker(3, 7, 1) + plain_batch(4))] == [0, 1, 2, 4, 5, 6]


def test_aborted_ranges_hide_only_their_producers_transactional_batches() -> None:
    data = (
        plain_batch(0, producer=7, attributes=TRANSACTIONAL)
        + plain_batch(3, producer=8, attributes=TRANSACTIONAL)
        + plain_batch(6, producer=7)
        + plain_batch(9, producer=7, attributes=TRANSACTIONAL)
        + plain_batch(13, producer=7, attributes=TRANSACTIONAL)
    )
    shown = {row[0] for row in decode(data, aborted=[aborted(7, 0, 12)])}
    assert shown == {3, 4, 5, 6, 7, 8, 13, 14, 15}
    assert {row[0] for row in decode(data, aborted=[aborted(7, 9, 9), aborted(8, 5, 5)])} == set(range(9)) | {
        13,
        14,
        15,
    }
    assert len(decode(data)) == len(decode(data, aborted=[])) == 15
    hidden = AbortFilter([aborted(7, 0, 12)])
    assert [header.base_offset for header in iter_batches(data, source="f") if hidden.hides(header)] == [0, 9]


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 30), st.integers(0, 12)), max_size=8), st.integers(0, 45))
def test_ranges_that_overlap_hide_their_union(ranges: list[tuple[int, int, int]], offset: int) -> None:
    hidden = AbortFilter([aborted(producer, first, first + size) for producer, first, size in ranges])
    for producer in (1, 2):
        expected = any(p == producer and first <= offset <= first + size for p, first, size in ranges)
        assert hidden.covers(producer, offset) == expected


def test_append_time_is_the_batchs_highest_timestamp() -> None:
    data = Batch(0, [record(0, b"k", b"v", time=5)], attributes=APPEND_TIME, time=100, max_time=900).bytes
    data += Batch(1, [record(0, b"k", b"v", time=5)], time=100, max_time=900).bytes
    data += Batch(2, [record(0, b"k", b"v", time=5)], attributes=APPEND_TIME, time=100, max_time=-1).bytes
    assert [row[1:3] for row in decode(data)] == [(900, 1), (105, 0), (-1, 1)]


@pytest.mark.parametrize("time", [2**63 - 1, -(2**63), 2**62, 9_223_372_036_854_776, -9_223_372_036_854_776])
def test_times_beyond_microseconds_are_kept_as_milliseconds_and_the_nearest_that_microseconds_have(time: int) -> None:
    data = plain_batch(0) + Batch(3, [record(0, b"k", b"v")], time=time).bytes
    assert decode(data)[-1][1] == time
    *_, millis = decode_batches(data, source="f", topic="t", partition=0, milliseconds=True)
    assert millis.column("timestamp").cast(pa.int64()).to_pylist()[-1] == time
    *_, micros = decode_batches(data, source="f", topic="t", partition=0)
    nearest = 9_223_372_036_854_775_000 if time > 0 else -9_223_372_036_854_775_000
    assert micros.column("timestamp").cast(pa.int64()).to_pylist()[-1] == nearest


@pytest.mark.parametrize("time", [2**63 - 1, -(2**63)])
def test_the_digest_and_the_json_of_rows_with_such_times_are_those_of_the_records(time: int) -> None:
    data = plain_batch(0) + Batch(3, [record(0, b"k", b"v")], time=time).bytes
    (block,) = decode_records(data, source="f")
    (rows,) = decode_batches(data, source="f", topic="t", partition=0, milliseconds=True)
    encoded = (parts_of(rows).encoded(), parts_of(block).encoded())
    assert [each.tobytes() for each in encoded[0]] == [each.tobytes() for each in encoded[1]]
    assert b"".join(json_lines(rows)) == b"".join(block_lines(block, "t", 0))


def test_times_to_the_edge_of_microseconds_fit() -> None:
    edge = 9_223_372_036_854_775
    data = Batch(0, [record(0, b"k", b"v", time=0), record(1, b"k", b"v", time=-2 * edge)], time=edge).bytes
    (batch,) = decode_batches(data, source="f", topic="t", partition=0)
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [edge * 1000, -edge * 1000]


def test_header_names_that_are_not_utf8_read_as_kafkas_client_reads_them() -> None:
    names = [b"plain", "größe".encode(), b"\xff\xfe", b"a\xc3", b"", b"\xe2\x82\xac", b"\xed\xa0\x80"]
    data = Batch(0, [record(0, b"k", b"v", [(name, name) for name in names]), record(1, None, None)]).bytes
    read = [*(name.decode("utf-8", "replace") for name in names[:-1]), "\ufffd"]
    expected = tuple(zip(read, names, strict=True))
    assert [row[5] for row in decode(data)] == [expected, ()]
    (batch,) = decode_batches(data, source="f", topic="t", partition=0)
    batch.validate(full=True)
    assert batch.column("headers").to_pylist() == [[{"key": key, "value": value} for key, value in expected], None]


def test_columns_are_those_asked_for_in_that_order() -> None:
    data = plain_batch(0, 3, LZ4)
    (batch,) = decode_batches(data, source="f", topic="t", partition=4, columns=["timestamp", "partition", "key"])
    assert batch.schema == record_schema(columns=["timestamp", "partition", "key"])
    assert batch.column("partition").to_pylist() == [4, 4, 4]
    with pytest.raises(InvalidRequest, match="unknown column"):
        list(decode_batches(data, source="f", topic="t", partition=4, columns=["keys"]))


def test_empty_batches_that_compaction_leaves_are_passed_over() -> None:
    empty = Batch(3, (), delta=4, codec=ZSTD, payload=b"").bytes
    assert [row[0] for row in decode(plain_batch(0) + empty + plain_batch(8))] == [0, 1, 2, 8, 9, 10]
    gaps = Batch(10, [record(2, b"k", b"v"), record(7, b"k", b"v")], delta=9).bytes
    assert [row[0] for row in decode(gaps)] == [12, 17]


def test_more_records_than_a_block_holds_come_in_several() -> None:
    count = 150_000
    records = b"".join(record(at, None, None) for at in range(count))
    data = Batch(0, [records], ZSTD, count=count).bytes
    blocks = list(decode_records(data, source="f"))
    assert len(blocks) == 3
    assert [offset for block in blocks for offset in block.offsets.tolist()] == list(range(count))
    assert blocks[0].binary(KEY_AT).null_count == len(blocks[0])


@pytest.mark.slow  # three times the compiler, from nothing: two minutes on two cores
def test_processes_that_compile_at_once_all_decode(tmp_path: Path) -> None:
    program = (  # the kernels of the environment are hidden: each process compiles
        "import pathlib, sys\nfrom tierstate.log import kernel_folder\n"
        f"kernel_folder.environments_folder = lambda: pathlib.Path({str(tmp_path / 'none')!r})\n"
        "from tierstate.log.decode import decode_records\n"
        "print(sum(len(b) for b in decode_records(bytes.fromhex(sys.argv[1]), source='f')))"
    )
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", program, plain_batch(0, 3, ZSTD).hex()]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) for _ in range(3)]
    assert [run.communicate(timeout=200)[0].strip() for run in runs] == ["3", "3", "3"]
    assert list((tmp_path / "tierstate" / "numba").rglob("*.nbc"))
