"""Indexes rebuilt from a log are the broker's own files; damaged ones are refused."""

from __future__ import annotations

import struct

import pytest

from tests.log.batches import CASES, golden_folder
from tests.log.index_files import built_indexes
from tierstate.log.indexes import (
    OffsetIndexCheck,
    lookup_offset,
    lookup_position,
    offset_index_entries,
    position_in,
    time_index_entries,
)
from tierstate.log.partition import format_epoch_checkpoint, parse_epoch_checkpoint
from tierstate.log.segment import LogSegment
from tierstate.log.transaction_index import format_transaction_index, parse_producer_snapshot, parse_transaction_index
from tierstate.state.epochs import Lineage
from tierstate.state.errors import CorruptData
from tierstate.state.offsets import Offset

REOPENED = ("epochs", 1020)
"""This broker was killed while it wrote the segment; when Kafka opens it, its count of 4096 bytes starts again."""


def rolled(case: str) -> list[LogSegment]:
    folder = golden_folder(case)
    return [LogSegment(folder.log_path(base)) for base in folder.base_offsets[:-1]]


@pytest.mark.parametrize("case", CASES)
def test_rebuilt_indexes_are_the_brokers(case: str) -> None:
    for segment in rolled(case):
        if (case, segment.base_offset) == REOPENED:
            continue
        batches = list(segment.batches())
        files = segment.offset_index.read_bytes(), segment.path.with_suffix(".timeindex").read_bytes()
        assert built_indexes(batches, segment.base_offset) == files


def test_the_index_of_a_reopened_segment_differs_and_fits() -> None:
    case, base = REOPENED
    segment = next(each for each in rolled(case) if each.base_offset == base)
    batches = list(segment.batches())
    own = segment.offset_index.read_bytes()
    rebuilt, _ = built_indexes(batches, base)
    assert rebuilt != own
    for data in (own, rebuilt):
        check = OffsetIndexCheck(offset_index_entries(data, base, "index"), batches[-1].last_offset)
        for batch in batches:
            check.add(batch)
        assert check.fits


@pytest.mark.parametrize("case", CASES)
def test_a_lookup_never_begins_behind_the_offset(case: str) -> None:
    for segment in rolled(case):
        index, base = segment.offset_index.read_bytes(), segment.base_offset
        entries = list(offset_index_entries(index, base, "index"))
        for batch in segment.batches(verify_crc=False):
            for offset in (batch.base_offset, batch.last_offset):
                assert lookup_position(entries, offset) <= batch.position
                assert position_in(index + bytes(800), base, offset) == lookup_position(entries, offset)
                assert segment.epoch_at(Offset(offset)) == batch.partition_leader_epoch


@pytest.mark.parametrize("case", ["gzip", "none", "transactions"])
def test_a_time_lookup_never_passes_the_first_record_of_that_time(case: str) -> None:
    for segment in rolled(case):
        entries = list(
            time_index_entries(segment.path.with_suffix(".timeindex").read_bytes(), segment.base_offset, "index")
        )
        batches = list(segment.batches(verify_crc=False))
        for timestamp in {batch.max_timestamp for batch in batches}:
            first = next(batch for batch in batches if batch.max_timestamp >= timestamp)
            assert (lookup_offset(entries, timestamp) or 0) <= first.last_offset


@pytest.mark.parametrize("case", CASES)
def test_preallocated_tails_of_active_indexes_are_no_data(case: str) -> None:
    folder = golden_folder(case)
    base = folder.base_offsets[-1]
    active = LogSegment(folder.log_path(base), active=True)
    batches = list(active.batches())
    offsets = list(offset_index_entries(active.offset_index.read_bytes(), base, "index"))
    times = list(time_index_entries(active.path.with_suffix(".timeindex").read_bytes(), base, "index"))
    assert all(entry.position in {batch.position for batch in batches} for entry in offsets)
    assert all(entry.timestamp in {batch.max_timestamp for batch in batches} for entry in times)
    assert len(active.offset_index.read_bytes()) > 60_000
    assert len(offsets) < 100


@pytest.mark.parametrize("case", ["transactions", "opentxn"])
def test_transaction_indexes_round_trip(case: str) -> None:
    seen = 0
    for segment in rolled(case):
        if segment.transaction_index.exists():
            data = segment.transaction_index.read_bytes()
            entries = parse_transaction_index(data, "index")
            assert format_transaction_index(entries) == data
            assert all(entry.range.first <= entry.range.last for entry in entries)
            seen += len(entries)
    assert seen > 20


@pytest.mark.parametrize("case", CASES)
def test_epoch_checkpoints_round_trip(case: str) -> None:
    data = (golden_folder(case).path / "leader-epoch-checkpoint").read_bytes()
    assert format_epoch_checkpoint(parse_epoch_checkpoint(data, "checkpoint")) == data


def test_batches_carry_the_epochs_of_the_checkpoint() -> None:
    folder = golden_folder("epochs")
    assert len(folder.lineage.entries) == 5
    for base in folder.base_offsets:
        for batch in LogSegment(folder.log_path(base)).batches():
            assert folder.lineage.epoch_at(batch.base_offset) == batch.partition_leader_epoch


def test_producer_snapshots_name_the_open_transactions() -> None:
    folder = golden_folder("transactions")
    entries = []
    for path in sorted(folder.path.glob("*.snapshot")):
        entries += parse_producer_snapshot(path.read_bytes(), path.name)
    assert entries
    assert all(entry.last_offset >= -1 and entry.open_transaction_offset >= -1 for entry in entries)


def test_a_producer_snapshot_with_any_flipped_byte_is_refused() -> None:
    path = sorted(golden_folder("transactions").path.glob("*.snapshot"))[-1]
    data = path.read_bytes()
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x41
        with pytest.raises(CorruptData):
            parse_producer_snapshot(bytes(damaged), "snapshot")
    for size in range(len(data)):
        with pytest.raises(CorruptData):
            parse_producer_snapshot(data[:size], "snapshot")


@pytest.mark.parametrize(
    "data",
    [b"1234567", struct.pack(">iiii", 5, 10, 5, 20), struct.pack(">iiii", 5, 10, 9, 10), struct.pack(">ii", -1, 4)],
)
def test_offset_indexes_that_do_not_increase_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptData):
        list(offset_index_entries(data, 100, "index"))


@pytest.mark.parametrize(
    "data",
    [b"1", struct.pack(">qiqi", 9, 1, 8, 2), struct.pack(">qiqi", 9, 5, 10, 4), struct.pack(">qi", 9, -5)],
)
def test_time_indexes_that_do_not_increase_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptData):
        list(time_index_entries(data, 100, "index"))


@pytest.mark.parametrize(
    "data", [b"0" * 33, struct.pack(">hqqqq", 0, 1, 9, 8, 7), struct.pack(">hqqqq", -1, 1, 1, 8, 7)]
)
def test_transaction_indexes_that_contradict_themselves_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptData):
        parse_transaction_index(data, "index")


@pytest.mark.parametrize(("text", "entries"), [("", []), ("0\r\n1\r\n3 7\r\n", [(3, 7)])])
def test_checkpoints_are_read_as_kafka_reads_them(text: str, entries: list[tuple[int, int]]) -> None:
    """A crash of the machine can leave an empty checkpoint."""
    assert parse_epoch_checkpoint(text, "checkpoint") == Lineage.of(*entries)


@pytest.mark.parametrize(
    "text",
    ["\n", "0\n", "1\n0\n", "0\n2\n0 0\n", "0\n1\n0\n", "0\n1\n0 x\n", "0\n1\n0 0", "0\n2\n1 0\n0 5\n", "0\n1\n-1 0\n"],
)
def test_checkpoints_that_are_damaged_are_refused(text: str) -> None:
    with pytest.raises(CorruptData):
        parse_epoch_checkpoint(text, "checkpoint")
