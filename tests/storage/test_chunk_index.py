"""The chunk index: Aiven's own vectors, and the effects of damage."""

from __future__ import annotations

import base64

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tierstate.state.errors import CorruptData, InvalidRequest
from tierstate.state.offsets import Offset
from tierstate.storage.segment.chunks import (
    ChunkIndex,
    chunk_of_offset,
    decode_sizes,
    encode_sizes,
    first_offsets,
    unwrap_sizes,
    wrap_sizes,
)

MAX = 2**31 - 1
VECTORS: list[tuple[list[int], str, str]] = [
    ([], "00000000", "KLUv/SAEIQAAAAAAAA=="),
    ([213], "00000001000000d5", "KLUv/SAIQQAAAAAAAQAAANU="),
    ([MAX], "000000017fffffff", "KLUv/SAIQQAAAAAAAX////8="),
    ([10, 20, 30], "000000030000000a01000a0000001e", "KLUv/SAPeQAAAAAAAwAAAAoBAAoAAAAe"),
    (
        [0, 1000, 2, 44002, 369],
        "000000050000000002000003e80002abe200000171",
        "KLUv/SAVqQAAAAAABQAAAAACAAAD6AACq+IAAAFx",
    ),
    ([MAX, MAX - 1, MAX - 2, 10], "000000047ffffffd010201000000000a", "KLUv/SAQgQAAAAAABH////0BAgEAAAAACg=="),
    ([1, 2, 3, MAX], "0000000400000001010001027fffffff", "KLUv/SAQgQAAAAAABAAAAAEBAAECf////w=="),
    (
        [1, 265, 275, 285, MAX],
        "000000050000000102000001080112011c7fffffff",
        "KLUv/SAVqQAAAAAABQAAAAECAAABCAESARx/////",
    ),
    (
        [1, 65545, 65555, 65565, MAX],
        "00000005000000010300000001000801001201001c7fffffff",
        "KLUv/SAZyQAAAAAABQAAAAEDAAAAAQAIAQASAQAcf////w==",
    ),
    (
        [1, 16777225, 16777235, 16777245, MAX],
        "0000000500000001040000000001000008010000120100001c7fffffff",
        "KLUv/SAd6QAAAAAABQAAAAEEAAAAAAEAAAgBAAASAQAAHH////8=",
    ),
    ([1000000, 1000010, 1000020], "00000003000f424001000a000f4254", "KLUv/SAPeQAAAAAAAwAPQkABAAoAD0JU"),
    ([5, 5], "0000000200000005010000000005", "KLUv/SAOcQAAAAAAAgAAAAUBAAAAAAU="),
    ([0, 0, 0], "000000030000000001000000000000", "KLUv/SAPeQAAAAAAAwAAAAABAAAAAAAA"),
]


@pytest.mark.parametrize(("sizes", "coded", "text"), VECTORS)
def test_the_codec_matches_aivens_vectors(sizes: list[int], coded: str, text: str) -> None:
    assert encode_sizes(sizes).hex() == coded
    assert decode_sizes(bytes.fromhex(coded)) == tuple(sizes)
    assert unwrap_sizes(text) == tuple(sizes)
    assert unwrap_sizes(wrap_sizes(sizes)) == tuple(sizes)


@given(st.lists(st.integers(0, MAX), max_size=50))
def test_every_list_of_sizes_comes_back(sizes: list[int]) -> None:
    assert unwrap_sizes(wrap_sizes(sizes)) == tuple(sizes)


@pytest.mark.parametrize("sizes", [list(range(0, MAX, 100_000)), list(range(MAX - 1, 0, -100_000))])
def test_a_long_list_needs_four_bytes_each(sizes: list[int]) -> None:
    coded = encode_sizes(sizes)
    assert coded[8] == 4
    assert decode_sizes(coded) == tuple(sizes)


@pytest.mark.parametrize("sizes", [[-1], [1, -1], [-1, 1], [1, -1, 1], [2**31]])
def test_a_size_that_does_not_fit_is_refused(sizes: list[int]) -> None:
    with pytest.raises(InvalidRequest):
        encode_sizes(sizes)


@given(st.binary(max_size=40))
def test_damaged_sizes_are_corrupt_or_sizes_never_another_error(coded: bytes) -> None:
    try:
        sizes = decode_sizes(coded)
    except CorruptData:
        return
    assert all(0 <= size <= MAX for size in sizes)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no base64!",
        "AAAA",
        base64.b64encode(zstandard.ZstdCompressor(write_content_size=False).compress(bytes(4))).decode(),
        base64.b64encode(bytes.fromhex("28b52ffde0") + (2**50).to_bytes(8, "little") + bytes(8)).decode(),
        base64.b64encode(zstandard.ZstdCompressor().compress(bytes(4)) + b"x").decode(),
        base64.b64encode(zstandard.ZstdCompressor().compress(bytes(4))[:-1]).decode(),
    ],
)
def test_a_damaged_wrapping_is_corrupt(text: str) -> None:
    with pytest.raises(CorruptData):
        unwrap_sizes(text)


def _rows(index: ChunkIndex) -> list[tuple[int, int, int, int, int]]:
    return [(each.id, each.plain_start, each.plain_size, each.stored_start, each.stored_size) for each in index]


def test_chunks_lie_where_aivens_tests_say() -> None:
    assert _rows(ChunkIndex(100, 250, (110, 30), fixed=True)) == [
        (0, 0, 100, 0, 110),
        (1, 100, 100, 110, 110),
        (2, 200, 50, 220, 30),
    ]
    assert _rows(ChunkIndex.of_variable(100, 250, [10, 20, 30])) == [
        (0, 0, 100, 0, 10),
        (1, 100, 100, 10, 20),
        (2, 200, 50, 30, 30),
    ]
    assert _rows(ChunkIndex(101, 253, (111, 81), fixed=True))[-1] == (2, 202, 51, 222, 81)
    assert _rows(ChunkIndex.of_variable(101, 253, [33, 22, 5]))[-1] == (2, 202, 51, 55, 5)


@pytest.mark.parametrize(
    "index",
    [ChunkIndex(100, 0, (100, 0), fixed=True), ChunkIndex.of_variable(100, 0, []), ChunkIndex.of_variable(100, 0, [0])],
)
def test_an_empty_log_has_one_empty_chunk(index: ChunkIndex) -> None:
    assert _rows(index) == [(0, 0, 0, 0, 0)]
    assert index.stored_bytes == 0


def test_positions_past_two_gigabytes_do_not_overflow() -> None:
    index = ChunkIndex(4096, 2_140_000_000, (4096 + 28, 28 + 2_140_000_000 % 4096), fixed=True)
    last = index.chunk(index.count - 1)
    assert last.stored_stop == index.stored_bytes == 2_140_000_000 + 28 * index.count


@pytest.mark.parametrize(
    ("chunk_bytes", "file_bytes", "sizes"),
    [(0, 10, [1]), (10, -1, [1]), (10, 100, [1] * 9), (10, 100, [1] * 11), (10, 20, [1, -1])],
)
def test_a_chunk_index_that_cannot_be_is_refused(chunk_bytes: int, file_bytes: int, sizes: list[int]) -> None:
    with pytest.raises(InvalidRequest):
        ChunkIndex.of_variable(chunk_bytes, file_bytes, sizes)


def test_an_offset_is_found_in_the_chunk_where_its_batch_begins() -> None:
    # Batches of offsets 100.., 110.., 120.. at 0, 60 and 130; the last one fills chunks 1, 2 and 3; 200.. begins in 4.
    batches = [(0, Offset(100)), (60, Offset(110)), (130, Offset(120)), (410, Offset(200))]
    firsts = first_offsets(batches, chunk_bytes=100, file_bytes=450)
    assert firsts == (100, 120, None, None, 200)
    expected = {90: 0, 100: 0, 119: 0, 120: 1, 199: 1, 200: 4, 10_000: 4}
    assert {offset: chunk_of_offset(firsts, offset) for offset in expected} == expected
