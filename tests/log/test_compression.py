"""Codecs give back exactly what was packed, never more than the limit, and refuse everything else."""

from __future__ import annotations

import tracemalloc

import cramjam
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.batches import GZIP, LZ4, NONE, SNAPPY, ZSTD, lz4_frame, pack, xerial
from tierstate.log.compression import FIRST_BYTES, Scratch, decompress, decompress_into
from tierstate.state.errors import BatchTooLarge, CorruptData

PACKED = (GZIP, SNAPPY, LZ4, ZSTD)


def unpack(codec: int, payload: bytes, limit: int = 1 << 26) -> bytes:
    return decompress(codec, payload, source="test", position=9, limit=limit)


@given(st.sampled_from([NONE, *PACKED]), st.binary(max_size=300), st.integers(1, 2000))
@settings(max_examples=150)
def test_packed_bytes_come_back(codec: int, part: bytes, times: int) -> None:
    raw = part * times
    assert unpack(codec, pack(codec, raw), limit=len(raw)) == raw


@given(st.binary(min_size=1, max_size=100), st.integers(1, 2000))
@settings(max_examples=50)
def test_xerial_blocks_of_the_java_client_come_back(part: bytes, times: int) -> None:
    raw = part * times
    assert unpack(SNAPPY, xerial(raw, block=1000), limit=len(raw)) == raw


@pytest.mark.parametrize("frame", ["sized", "unsized", "checksummed"])
def test_zstd_frames_of_every_kind_come_back(frame: str) -> None:
    raw = bytes(range(256)) * 20_000
    packer = zstandard.ZstdCompressor(write_content_size=frame == "sized", write_checksum=frame == "checksummed")
    assert unpack(ZSTD, packer.compress(raw)) == raw


@pytest.mark.parametrize("codec", PACKED)
def test_one_byte_over_the_limit_is_refused(codec: int) -> None:
    raw = b"abcdefgh" * 5000
    with pytest.raises(BatchTooLarge, match="more than 39999 bytes"):
        unpack(codec, pack(codec, raw), limit=len(raw) - 1)
    with pytest.raises(BatchTooLarge):
        unpack(SNAPPY, xerial(raw, 999), limit=len(raw) - 1)


@pytest.mark.parametrize("sized", [False, True])
@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_costs_no_more_than_the_limit(codec: int, sized: bool) -> None:
    zeros = bytes(64 << 20)
    bomb = zstandard.ZstdCompressor().compress(zeros) if codec == ZSTD and sized else pack(codec, zeros)
    del zeros
    tracemalloc.start()
    with pytest.raises(BatchTooLarge):
        unpack(codec, bomb, limit=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


@pytest.mark.parametrize("codec", PACKED)
def test_every_cut_is_refused(codec: int) -> None:
    payload = pack(codec, b"the same words again and again " * 40)
    for size in range(len(payload)):
        with pytest.raises(CorruptData):
            unpack(codec, payload[:size])


def test_every_cut_of_xerial_blocks_is_refused_except_before_a_block() -> None:
    payload = xerial(b"abcd" * 1000, block=1500)
    whole: set[int] = set()
    at = 16
    while at < len(payload):
        whole.update(range(at, at + 4))  # so little is not looked at
        at += 4 + int.from_bytes(payload[at : at + 4], "big")
    for size in set(range(1, len(payload))) - whole:
        with pytest.raises(CorruptData):
            unpack(SNAPPY, payload[:size])


@pytest.mark.parametrize("other", PACKED)
@pytest.mark.parametrize("codec", PACKED)
def test_another_codecs_bytes_are_refused(codec: int, other: int) -> None:
    if codec != other:
        with pytest.raises(CorruptData):
            unpack(codec, pack(other, b"abcdefgh" * 100))


def test_a_zstd_frame_that_lies_about_its_size_is_refused() -> None:
    frame = bytearray(zstandard.ZstdCompressor().compress(b"x" * 200))
    parameters = zstandard.get_frame_parameters(bytes(frame))
    assert parameters.content_size == 200
    frame[5] = 199
    with pytest.raises(CorruptData):
        unpack(ZSTD, bytes(frame))


def test_lz4_blocks_of_every_size_and_stored_blocks_come_back() -> None:
    noise = bytes((at * at * 7919 >> 5) & 255 for at in range(300_000))
    text = b"the same words again and again " * 9000
    for raw in (noise, text, b""):
        assert unpack(LZ4, lz4_frame(raw), limit=len(raw)) == raw
        assert unpack(LZ4, lz4_frame(raw, stored=True), limit=len(raw)) == raw
        for level in (1, 9):
            assert unpack(LZ4, bytes(cramjam.lz4.compress(raw, level=level)), limit=len(raw)) == raw


@pytest.mark.parametrize("stored", [False, True])
def test_lz4_blocks_that_hold_more_than_a_block_or_the_limit_are_refused(stored: bool) -> None:
    raw = b"ab" * 50_000
    with pytest.raises(BatchTooLarge):
        unpack(LZ4, lz4_frame(raw, stored), limit=len(raw) - 1)
    block = raw if stored else bytes(cramjam.lz4.compress_block(raw, store_size=False))
    size = len(block) | (1 << 31 if stored else 0)
    frame = lz4_frame(b"")[:7] + size.to_bytes(4, "little") + block + bytes(4)
    with pytest.raises(CorruptData):
        unpack(LZ4, frame)


def test_frames_with_checksums_are_refused_where_they_are_cut() -> None:
    payload = bytes(cramjam.lz4.compress(b"the same words again and again " * 40))
    for size in range(len(payload)):
        with pytest.raises(CorruptData):
            unpack(LZ4, payload[:size])


def test_scratch_keeps_what_it_has_while_it_grows() -> None:
    scratch = Scratch(np.empty(16, np.uint8))
    parts = [bytes([at]) * 1000 * at for at in range(1, 6)]
    for codec, part in zip((NONE, GZIP, SNAPPY, LZ4, ZSTD), parts, strict=True):
        decompress_into(scratch, codec, pack(codec, part), source="test", position=0)
    assert scratch.view[: scratch.used].tobytes() == b"".join(parts)


def test_a_refused_payload_leaves_scratch_as_it_was() -> None:
    scratch = Scratch(np.empty(FIRST_BYTES, np.uint8))
    decompress_into(scratch, NONE, b"kept", source="test", position=0)
    for codec in PACKED:
        with pytest.raises(CorruptData, match="position=7"):
            decompress_into(scratch, codec, pack(codec, b"abc" * 9000)[:-9], source="test", position=7)
    assert scratch.view[: scratch.used].tobytes() == b"kept"


@given(st.sampled_from(PACKED), st.data())
@settings(max_examples=300)
def test_flipped_bytes_are_refused_or_bounded(codec: int, data: st.DataObject) -> None:
    payload = bytearray(pack(codec, b"the same words again and again " * 40))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        unpacked = unpack(codec, bytes(payload), limit=100_000)
    except (BatchTooLarge, CorruptData):
        return
    assert len(unpacked) <= 100_000


@pytest.mark.parametrize("codec", PACKED)
def test_a_batch_at_the_limit_costs_the_limit_and_not_twice_that(codec: int) -> None:
    limit = 64 << 20
    payload = pack(codec, bytes(limit))
    scratch = Scratch(np.empty(FIRST_BYTES, np.uint8))
    tracemalloc.start()
    decompress_into(scratch, codec, payload, source="test", position=0, limit=limit)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert scratch.used == limit
    assert peak < 1.7 * limit


def test_unpacked_bytes_stay_while_they_are_viewed() -> None:
    scratch = Scratch(np.empty(1000, np.uint8))
    decompress_into(scratch, NONE, b"a" * 1000, source="test", position=0)
    seen = scratch.data
    decompress_into(scratch, NONE, b"b" * 100_000, source="test", position=0)
    assert seen.tobytes() == b"a" * 1000


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_frames_one_behind_the_other_have_one_limit(codec: int) -> None:
    payload = pack(codec, b"ab" * 5000) * 4
    assert unpack(codec, payload, limit=40_000) == b"ab" * 20_000
    with pytest.raises(BatchTooLarge, match="more than 39999 bytes"):
        unpack(codec, payload, limit=39_999)
