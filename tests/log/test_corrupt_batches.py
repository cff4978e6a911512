"""Any file gives the right records, or CorruptData that names the place. Never a crash, never wrong bytes."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.batches import (
    NONE,
    ZSTD,
    Batch,
    Row,
    block_rows,
    golden_folder,
    header_batch,
    plain_batch,
    record,
    varint,
)
from tierstate.log.batch import BatchHeader, iter_batches
from tierstate.log.decode import decode_batches, decode_records
from tierstate.state.errors import BatchTooLarge, CorruptData


def decode(data: bytes, **options: Any) -> list[Row]:
    return [row for block in decode_records(data, source="f", **options) for row in block_rows(block)]


def headers(data: bytes, **options: Any) -> list[BatchHeader]:
    return list(iter_batches(data, source="f", **options))


def with_crc(data: bytes) -> bytes:
    """Return the one batch with its CRC put right."""
    return data[:17] + struct.pack(">I", google_crc32c.value(data[21:])) + data[21:]


@pytest.mark.parametrize("read", [decode, headers])
@pytest.mark.parametrize("codec", range(5))
def test_a_flipped_byte_anywhere_is_refused(codec: int, read: Callable[..., object]) -> None:
    first, second, third = (plain_batch(base, 20, codec) for base in (0, 20, 40))
    data = first + second + third
    begin, end = len(first), len(first) + len(second)
    for at in range(begin, end):
        if at - begin in range(12, 16):  # the leader epoch is outside the CRC
            continue
        damaged = bytearray(data)
        damaged[at] ^= 0x55
        if at - begin < 8:
            damaged[at] = 0xFF  # the base offset is outside the CRC: wrong only where it leaves the order
            if at > begin:
                continue
        with pytest.raises(CorruptData, match="file=f"):
            read(bytes(damaged))


def test_small_and_large_batches_are_summed_alike() -> None:
    for count in (1, 20, 40, 80, 500):
        data = plain_batch(0, count)
        assert len(decode(data)) == count
        for at in (21, len(data) // 2, len(data) - 1):
            damaged = bytearray(data)
            damaged[at] ^= 1
            with pytest.raises(CorruptData, match="CRC does not match"):
                decode(bytes(damaged))


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("count", [3, 500])
@pytest.mark.parametrize("fault", ["crc", "records", "codec", "size"])
def test_all_batches_before_a_wrong_one_come_before_its_error(codec: int, count: int, fault: str) -> None:
    wrong = {
        "crc": plain_batch(3 * count, count, codec)[:-1] + b"\xaa",
        "records": Batch(3 * count, [record(0, b"k", b"v"), b"\0"], codec).bytes,
        "codec": Batch(3 * count, [record(0, b"k", b"v")], codec, payload=b"\xff" * 100).bytes,
        "size": Batch(3 * count, [record(0, None, bytes(30_000))], codec).bytes,
    }[fault]
    data = b"".join(plain_batch(base * count, count, codec) for base in range(3)) + wrong
    blocks, rows = decode_records(data, source="f", start=1, most_unpacked=29_000), list[Row]()
    with pytest.raises(BatchTooLarge if fault == "size" else CorruptData):
        rows.extend(row for block in blocks for row in block_rows(block))
    assert [row[0] for row in rows] == list(range(1, 3 * count))


def test_both_readers_say_the_same_of_the_same_fault() -> None:
    good = plain_batch(5)
    faults = [
        good + good,
        good[:-1],
        good[:40],
        good + good[:61],
        good[:16] + b"\1" + good[17:],
        good[:8] + struct.pack(">i", -1) + good[12:],
        good[:8] + struct.pack(">i", 48) + good[12:],
        good[:8] + struct.pack(">i", 2**31 - 1) + good[12:],
        with_crc(good[:22] + b"\7" + good[23:]),
        with_crc(good[:23] + struct.pack(">i", -1) + good[27:]),
        with_crc(good[:57] + struct.pack(">i", -1) + good[61:]),
        with_crc(good[:57] + struct.pack(">i", 4) + good[61:]),
        struct.pack(">q", 2**63 - 1) + good[8:],
        b"\0" * 200,
        b"\xff" * 200,
        b"x",
    ]
    readers: list[Callable[..., object]] = [headers, decode]
    for data in faults:
        errors = []
        for read in readers:
            with pytest.raises(CorruptData) as refused:
                read(data, position=1000)
            errors.append(str(refused.value))
        assert errors[0] == errors[1]
        assert "position=1" in errors[0]


def test_a_fault_behind_the_first_thousands_of_batches_is_found() -> None:
    data = b"".join(plain_batch(base, 1) for base in range(9000))
    assert len(decode(data)) == 9000
    with pytest.raises(CorruptData, match="do not increase"):
        decode(data + plain_batch(8999, 1))
    for good in (4095, 4096, 4097, 8192):  # the scan takes 4096 at a time
        with pytest.raises(CorruptData, match="do not increase"):
            decode(b"".join(plain_batch(base, 1) for base in range(good)) + plain_batch(good - 1, 1))


@pytest.mark.parametrize("codec", [NONE, ZSTD])
@pytest.mark.parametrize(
    ("records", "count", "reason"),
    [
        ([record(0, b"k", b"v")], 2, "reaches beyond"),
        ([record(0, b"k", b"v"), b"\0"], 1, "left over"),
        ([record(0, b"k", b"v")[:-1]], 1, "reaches beyond"),
        ([record(7, b"k", b"v")], 1, "above its batch's last offset"),
        ([record(-1, b"k", b"v"), record(2, b"k", b"v")], 2, "above its batch's last offset"),
        ([b"\0"], 1, "contradict"),
        ([b"\xff" * 12], 1, "reaches beyond"),
        ([varint(-5) + b"abcdefgh"], 1, "reaches beyond"),
        ([varint(6) + b"\0\0\0" + varint(-2) + b"\1\0"], 1, "contradict"),
        ([varint(6) + b"\0\0\0\1" + varint(2) + b"\0"], 1, "contradict"),
        ([varint(6) + b"\0\0\0\1\1" + varint(-1)], 1, "contradict"),
        ([varint(6) + b"\0\0\0\1\1" + varint(60)], 1, "contradict"),
        ([varint(8) + b"\0\0\0\1\1" + varint(1) + varint(-1) + b"\1"], 1, "contradict"),
        ([varint(8) + b"\0\0\0\1\1" + varint(1) + varint(0) + varint(9)], 1, "contradict"),
        ([varint(15) + b"\0\0\0" + b"\xfe" + b"\xff" * 8 + b"\1" + b"\1\0"], 1, "contradict"),
        ([varint(7) + b"\0\0\0\1\1\0\0"], 1, "contradict"),
        ([varint(15) + b"\0\0\0\1" + varint(2**63 - 1) + b"\0"], 1, "contradict"),
        ([varint(17) + b"\0\0\0\1\1" + varint(1) + varint(2**63 - 1) + b"\0"], 1, "contradict"),
        ([varint(17) + b"\0\0\0\1\1" + varint(1) + varint(0) + varint(2**63 - 1)], 1, "contradict"),
    ],
)
def test_records_that_contradict_their_batch_are_refused(
    records: list[bytes], count: int, reason: str, codec: int
) -> None:
    data = plain_batch(0, 2) + Batch(2, records, codec, count=count).bytes
    with pytest.raises(CorruptData, match=reason) as refused:
        decode(data, position=100)
    assert refused.value.facts["position"] == 100 + len(plain_batch(0, 2))
    assert refused.value.facts["file"] == "f"


@given(
    st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd", "transactions"]),
    st.lists(st.tuples(st.integers(0, 2**31), st.integers(0, 255)), min_size=1, max_size=8),
    st.integers(0, 200_000),
)
@settings(max_examples=250)
def test_without_crc_damage_ends_in_records_or_corrupt_data(case: str, flips: list[tuple[int, int]], cut: int) -> None:
    folder = golden_folder(case)
    data = bytearray(folder.log_path(folder.base_offsets[0]).read_bytes()[: 2000 + cut % 20_000])
    for at, byte in flips:
        data[at % len(data)] = byte
    refused = None
    try:
        for batch in decode_batches(bytes(data), source="f", topic="t", partition=0, verify_crc=False):
            batch.validate(full=True)
    except CorruptData as error:
        refused = error
    assert refused is None or refused.facts["file"] == "f"


@given(st.binary(max_size=400), st.integers(0, 40), st.integers(0, 60))
@settings(max_examples=400)
def test_any_bytes_as_records_end_in_records_or_corrupt_data(payload: bytes, count: int, delta: int) -> None:
    data = Batch(0, (), payload=payload, count=count, delta=delta).bytes
    try:
        decoded = decode(data)
    except CorruptData:
        return
    offsets = [row[0] for row in decoded]
    assert len(decoded) <= count
    assert offsets == sorted(set(offsets)), "records whose offsets do not count up are passed over"


@given(st.integers(0, 12), st.integers(0, 255), st.integers(0, 40))
@settings(max_examples=200)
def test_one_changed_byte_in_a_record_never_shows_bytes_from_outside_the_batch(at: int, byte: int, more: int) -> None:
    body = bytearray(record(0, b"key", b"v" * more, [(b"n", b"c")]))
    body[at % len(body)] = byte
    data = Batch(0, [bytes(body)]).bytes
    guarded = data + plain_batch(1, 1).replace(b"v1", b"!!")
    try:
        rows = decode(guarded, verify_crc=False)
    except CorruptData:
        return
    assert all(b"!!" not in (row[3] or b"") + (row[4] or b"") for row in rows[:-1])


@pytest.mark.extended
def test_a_batch_of_millions_of_tiny_records_costs_no_more_than_its_bytes() -> None:
    tiny = [b"\x0c\0\0" + varint(at) + b"\1\1\0" for at in range(50)]
    assert len(decode(Batch(0, tiny).bytes)) == 50
    many = 2_000_000
    records = b"".join(varint(5 + len(varint(at))) + b"\0\0" + varint(at) + b"\1\1\0" for at in range(many))
    data = Batch(0, [records], ZSTD, count=many).bytes
    tracemalloc.start()
    rows = 0
    for batch in decode_batches(data, source="f", topic="t" * 249, partition=0):
        rows += batch.num_rows
        assert batch.num_rows <= 1 << 16
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == many
    assert peak < 120 << 20


def test_a_count_of_billions_in_a_small_batch_allocates_nothing() -> None:
    data = Batch(0, [record(0, None, None)], count=2**31 - 1, delta=2**31 - 2).bytes
    tracemalloc.start()
    with pytest.raises(CorruptData, match="reaches beyond"):
        decode(data)
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_more_headers_than_a_record_may_have_cost_no_memory_and_are_named() -> None:
    bomb = header_batch(30_000_000)
    assert len(bomb) < 10_000
    tracemalloc.start()
    with pytest.raises(CorruptData, match=r"a record has more than 1048576 headers.*file=f"):
        list(decode_batches(bomb, source="f", topic="t", partition=0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000_000  # 60 of it are the unpacked records
    assert decode(bomb, start=1) == []


def test_headers_are_decoded_a_million_at_a_time_whatever_the_records_are() -> None:
    data = header_batch(*[300_000] * 7, 1 << 20, 1)
    blocks = list(decode_records(data, source="f"))
    assert [len(block) for block in blocks] == [3, 3, 1, 1, 1]
    assert [offset for block in blocks for offset in block.offsets.tolist()] == list(range(9))
    assert sum(int(block.header_table().lists[-1]) for block in blocks) == 7 * 300_000 + (1 << 20) + 1


def test_a_record_at_the_highest_offset_there_is_is_read() -> None:
    highest = 2**63 - 1
    data = plain_batch(highest - 2, 3)
    assert [row[0] for row in decode(data)] == [highest - 2, highest - 1, highest]
    assert [row[0] for row in decode(data, end=highest)] == [highest - 2, highest - 1]
