"""The parser in plain Python and the kernel read the same records, and raise the same errors for broken ones."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.batches import (
    CASES,
    NONE,
    OFFSET_DELTAS,
    TIME,
    ZSTD,
    Batch,
    Row,
    block_rows,
    golden_folder,
    header_batch,
    plain_batch,
    record,
    sized,
    varint,
)
from tierstate.log.batch import HEADER_BYTES, iter_batches
from tierstate.log.decode import decode_records
from tierstate.log.folder import open_log
from tierstate.log.json_lines import block_lines
from tierstate.log.kernels import VALUE_AT, VALUE_BYTES
from tierstate.log.record_lines import Encoding, record_line
from tierstate.log.record_parser import LENGTH, MAX_HEADERS, REASONS, is_decodable, parse_records
from tierstate.state.errors import CorruptData
from tierstate.state.offsets import Offset
from tierstate.state.segment import AbortedRange

EVERYTHING = (0, None)


def parsed(data: bytes, within: tuple[int, int | None] = EVERYTHING) -> list[Row] | str:
    """Return the records, or the error."""
    start, end = within
    try:
        outcome = parse_records(data, source="f", position=7, start=start, end=end)
        return [(*each[:5], tuple(each.headers)) for each in outcome]
    except CorruptData as error:
        return str(error)


def decoded(data: bytes, within: tuple[int, int | None] = EVERYTHING) -> list[Row] | str:
    start, end = within
    try:
        blocks = decode_records(data, source="f", position=7, start=start, end=end)
        return [row for block in blocks for row in block_rows(block)]
    except CorruptData as error:
        return str(error)


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_a_golden_log_has_the_same_lines_by_both(case: str, committed: bool, encoding: Encoding) -> None:
    for piece in open_log(golden_folder(case).path).pieces(committed=committed):
        lines = b"".join(record_line(each, "t", 3, encoding) for each in piece.records())
        assert lines == b"".join(text for block in piece.blocks() for text in block_lines(block, "t", 3, encoding))


BYTES = st.binary(max_size=200) | st.none()
HEADERS = st.lists(st.tuples(st.binary(max_size=70), BYTES), max_size=3)
RECORDS = st.lists(
    st.tuples(st.integers(1, 200), BYTES, BYTES, HEADERS, st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=12
)


def batch_of(rows: list[tuple[int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]], int]]) -> list[bytes]:
    deltas = [sum(row[0] for row in rows[: nth + 1]) - 1 for nth in range(len(rows))]
    return [
        record(delta, key, value, headers, time)
        for delta, (_, key, value, headers, time) in zip(deltas, rows, strict=True)
    ]


@settings(max_examples=300)
@given(RECORDS, st.sampled_from([NONE, ZSTD]), st.sampled_from([0, 8]), st.integers(0, 300), st.integers(0, 900))
def test_records_of_any_shape_are_the_same_by_both(
    rows: list[tuple[int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]], int]],
    codec: int,
    by_append: int,
    start: int,
    size: int,
) -> None:
    data = Batch(100, batch_of(rows), codec, attributes=by_append, max_time=TIME + 5, delta=3000).bytes
    within = (start, start + size)
    assert parsed(data) == decoded(data)
    assert len(parsed(data)) == len(rows)
    lines = b"".join(record_line(each, "t", 3, Encoding.UTF8) for each in parse_records(data, source="f"))
    blocks = decode_records(data, source="f")
    assert lines == b"".join(text for block in blocks for text in block_lines(block, "t", 3))
    assert parsed(data, within) == decoded(data, within)


@settings(max_examples=300)
@given(
    RECORDS,
    st.lists(st.tuples(st.integers(0, 2**31), st.sampled_from([0, 1, 2, 3, 63, 127, 128, 200, 254, 255])), max_size=5),
    st.integers(0, 60),
    st.integers(-1, 2),
)
def test_a_broken_record_has_the_same_error_by_both(
    rows: list[tuple[int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]], int]],
    changes: list[tuple[int, int]],
    cut: int,
    more: int,
) -> None:
    """A producer wrote these bytes: their CRC is right."""
    payload = bytearray(b"".join(batch_of(rows)))
    for at, byte in changes:
        payload[at % len(payload)] = byte
    broken = bytes(payload[: len(payload) - cut])
    count = max(1, len(rows) + more)
    data = plain_batch(0, 2) + Batch(5, (), payload=broken, count=count, delta=3000).bytes
    assert parsed(data) == decoded(data)


LONGEST = b"\xff" * 9 + b"\x7f"
"""A varint of ten bytes, of which only 64 bits count."""


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (record(1, b"k", b"v") + record(1, b"k", b"v"), 2),
        (record(1, b"k", b"v") + record(0, b"k", b"v"), 2),
        (record(61, b"k", b"v"), 1),
        (record(-1, b"k", b"v"), 1),
        (record(0, b"k", b"v") + b"\0", 1),
        (record(0, b"k", b"v"), 2),
        (b"\x1e\0" + LONGEST + b"\0\1\1\0", 1),
        (b"\x1e\0\0" + LONGEST + b"\1\1\0", 1),
        (b"\xff" * 11, 1),
        (b"\x10\0\0\0\1\1\2\1\1", 1),
        (b"\x12\0\0\0\1\1\2\2n\3", 1),
        (b"\x0c\0\0\0\3\1\0", 1),
    ],
)
def test_each_fault_of_a_record_has_the_same_error_by_both(payload: bytes, count: int) -> None:
    data = plain_batch(0, 2) + Batch(5, (), payload=payload, count=count, delta=60).bytes
    assert parsed(data) == decoded(data)


@pytest.mark.parametrize("codec", [NONE, ZSTD])
@pytest.mark.parametrize(
    ("deltas", "shown"),
    [
        ((0, 0, 0), [10]),
        ((2, 1, 0), [12]),
        ((-1, 0, 1), [10, 11]),
        ((-(2**40), 1, 0, 2, 2), [11, 12]),
        ((0, 3, 1, 2, 4), [10, 13, 14]),
    ],
)
def test_offsets_that_do_not_count_up_are_passed_over_from_wherever_one_reads(
    deltas: tuple[int, ...], shown: list[int], codec: int
) -> None:
    data = plain_batch(0, 10) + Batch(10, [record(delta, b"k", b"v") for delta in deltas], codec).bytes
    data += plain_batch(10 + len(deltas), 2)
    every = [*range(10), *shown, 10 + len(deltas), 11 + len(deltas)]
    for start in range(17):
        for end in (*range(start, 17), None):
            expected = [offset for offset in every if start <= offset and (end is None or offset < end)]
            for read in (parsed, decoded):
                assert [row[0] for row in read(data, (start, end))] == expected, (read, start, end)


@pytest.mark.parametrize("input_name", ["same", "back", "below"])
def test_a_passed_over_record_is_never_counted(input_name: str) -> None:
    """Blocks count their headers, nulls and bytes."""
    data = (OFFSET_DELTAS / f"{input_name}.log").read_bytes()
    (block, *_) = [*decode_records(data + plain_batch(2, 1), source="f")]
    assert len(block) == len(block_rows(block)) == len(parsed(data + plain_batch(2, 1)))
    values = block.binary(VALUE_AT).to_pylist()
    assert int(block.sums[VALUE_BYTES]) == sum(map(len, values))


@settings(max_examples=500)
@given(
    RECORDS,
    st.lists(st.tuples(st.integers(0, 2**31), st.sampled_from([0, 1, 2, 3, 63, 127, 128, 200, 254, 255])), max_size=2),
    st.integers(0, 20),
    st.integers(-1, 2),
    st.sampled_from([0, 40, 3000]),
)
def test_the_walk_over_offsets_and_the_parser_agree_on_decodable_batches(
    rows: list[tuple[int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]], int]],
    changes: list[tuple[int, int]],
    cut: int,
    more: int,
    delta: int,
) -> None:
    """Contradictions inside of a record are exempt: the walk does not look at them, and brokers refuse such records."""
    payload = bytearray(b"".join(batch_of(rows)))
    for at, byte in changes:
        payload[at % len(payload)] = byte
    count = max(1, len(rows) + more)
    broken = bytes(payload[: len(payload) - cut])
    data = Batch(5, (), payload=broken, count=count, delta=max(delta, count - 1)).bytes
    outcome = parsed(data)
    if isinstance(outcome, str) and REASONS[LENGTH] in outcome:
        return
    (batch,) = iter_batches(data, source="f")
    assert is_decodable(data, 0, batch) == (not isinstance(outcome, str)), outcome


@pytest.mark.parametrize("count", [1, 64, 65, 8192, 8193, 20_000])
@pytest.mark.parametrize("above", [0, 1])
def test_a_record_right_above_its_batch_is_found_in_batches_of_any_length(count: int, above: int) -> None:
    size = 20_000 if count == 1 else 0
    records = [record(delta, None, b"v" * size) for delta in range(count - 1)]
    data = Batch(7, [*records, record(count - 1 + above, None, b"v" * size)]).bytes
    (batch,) = iter_batches(data, source="f")
    assert is_decodable(data, 0, batch) == (not above)
    assert isinstance(parsed(data), str) == bool(above)


@pytest.mark.parametrize("more", [0, 1])
def test_a_record_with_too_many_headers_is_found_where_it_is_not_packed(more: int) -> None:
    count = MAX_HEADERS + more
    body = b"\0" + varint(0) + varint(0) + sized(b"key") + sized(None) + varint(count) + bytes(2 * count)
    data = Batch(0, [varint(len(body)) + body]).bytes
    (batch,) = iter_batches(data, source="f")
    assert is_decodable(data, 0, batch) == (not more)


@given(st.binary(max_size=300), st.integers(0, 40))
@settings(max_examples=300)
def test_any_bytes_have_the_same_error_by_both(payload: bytes, count: int) -> None:
    data = Batch(3, (), payload=payload, count=count, delta=60).bytes
    assert parsed(data) == decoded(data)


@pytest.mark.parametrize("at", [8, 16, 18, 30, 59, HEADER_BYTES, HEADER_BYTES + 9])
def test_a_batch_that_was_damaged_has_the_same_error_by_both(at: int) -> None:
    damaged = bytearray(plain_batch(0, 3) + plain_batch(3, 3))
    damaged[len(plain_batch(0, 3)) + at] ^= 0x55
    assert isinstance(parsed(bytes(damaged)), str)
    assert parsed(bytes(damaged)) == decoded(bytes(damaged))


@pytest.mark.extended
def test_more_headers_than_a_record_may_have_are_refused_by_both() -> None:
    data = header_batch(1, (1 << 20) + 1)
    assert "has more than 1048576 headers" in parsed(data)
    assert parsed(data) == decoded(data)
    assert parsed(data, (0, 1)) == decoded(data, (0, 1))


def test_both_hide_aborted_records() -> None:
    data = plain_batch(0, 3, attributes=16, producer=4) + plain_batch(3, 2, attributes=16, producer=5)
    aborted = (AbortedRange(4, Offset(0), Offset(2)),)
    offsets = [each.offset for each in parse_records(data, source="f", aborted=aborted)]
    assert offsets == [3, 4]
    blocks = decode_records(data, source="f", aborted=aborted)
    assert [row[0] for block in blocks for row in block_rows(block)] == offsets
