"""A copy equals the broker's files, byte for byte, and its descriptor is true."""

from __future__ import annotations

from collections.abc import Callable

import google_crc32c
import pytest

from tests.leader.world import World
from tierstate.log.indexes import (
    OffsetIndexCheck,
    lookup_offset,
    lookup_position,
    offset_index_entries,
    time_index_entries,
)
from tierstate.log.transaction_index import parse_transaction_index
from tierstate.state.ids import BrokerId
from tierstate.state.offsets import Offset
from tierstate.state.segment import AbortedRange, Compression
from tierstate.storage.segment.manifest import IndexKind
from tierstate.storage.segment.reader import SegmentReader

NewWorld = Callable[..., World]
CASES = ["none", "zstd", "transactions", "epochs", "big", "appendtime", "recompressed"]


@pytest.mark.parametrize("case", CASES)
def test_a_copied_partition_reads_back_byte_for_byte(case: str, new_world: NewWorld) -> None:
    world = new_world(case)
    world.roll()
    world.process().copy_all()
    view = world.check_promises()
    assert [segment.offsets.start for segment in view.readable] == world.rolled
    for segment in view.readable:
        base, following = segment.offsets.start, segment.offsets.end + 1
        reader = SegmentReader.open(world.store, segment.object_key)
        assert b"".join(reader.read_log()) == world.file(base).read_bytes()
        assert reader.indexes(IndexKind.OFFSET) == world.file(base, ".index").read_bytes()
        assert reader.indexes(IndexKind.TIME) == world.file(base, ".timeindex").read_bytes()
        assert reader.indexes(IndexKind.PRODUCER_SNAPSHOT) == world.file(following, ".snapshot").read_bytes()
        aborts = world.file(base, ".txnindex")
        assert reader.indexes(IndexKind.TRANSACTION) == (aborts.read_bytes() if aborts.exists() else None)


@pytest.mark.parametrize("case", CASES)
def test_the_descriptor_tells_the_truth(case: str, new_world: NewWorld) -> None:
    world = new_world(case)
    world.roll()
    world.process().copy_all()
    for segment in world.view().readable:
        data = world.file(segment.offsets.start).read_bytes()
        batches = world.batches(segment.offsets.start)
        records = [batch for batch in batches if not batch.is_control]
        assert segment.record_count == sum(batch.record_count for batch in records)
        assert segment.last_record_offset == batches[-1].last_offset
        assert segment.max_timestamp == max(batch.max_timestamp for batch in batches)  # markers too, as in KIP-405
        assert segment.log_bytes == len(data)
        assert segment.log_crc32c == google_crc32c.value(data)
        assert segment.compression is (Compression.NONE if batches[0].codec else Compression.ZSTD)
        assert segment.offsets.end + 1 in world.bases
        assert [entry.epoch for entry in segment.leader_epochs.entries] == sorted(
            {batch.partition_leader_epoch for batch in batches}
        )
        assert segment.copied_at == world.clock.now_ms()
        manifest = SegmentReader.open(world.store, segment.object_key).manifest
        assert manifest.tierstate is not None
        assert manifest.tierstate.segment == segment


@pytest.mark.parametrize("case", ["transactions", "opentxn"])
def test_aborted_ranges_are_collected_even_when_their_marker_is_in_a_later_segment(
    case: str, new_world: NewWorld
) -> None:
    world = new_world(case)
    everything: set[AbortedRange] = set()
    for file in world.folder.glob("*.txnindex"):
        everything |= {entry.range for entry in parse_transaction_index(file.read_bytes(), "folder")}
    process = world.process()
    session = process.begin()
    for _ in world.rolled[: 4 if case == "transactions" else 3]:
        process.copy_next(session)
    across = 0
    for segment in world.view().readable:
        touching = {r for r in everything if r.first <= segment.offsets.end and r.last >= segment.offsets.start}
        across += sum(each.last > segment.offsets.end for each in touching)
        assert set(segment.aborted.entries) == touching
        manifest = SegmentReader.open(world.store, segment.object_key).manifest
        assert manifest.tierstate is not None
        assert set(manifest.tierstate.aborted) == touching
    assert across or case == "transactions", "no marker lies in a later segment: the test shows nothing"


def test_an_entry_that_the_broker_is_writing_to_its_active_transaction_index_is_no_corruption(
    new_world: NewWorld,
) -> None:
    world = new_world("transactions")
    world.file(world.bases[-1], ".txnindex").write_bytes(b"\0" * 17)
    world.process().copy_all()
    assert len(world.view().readable) == len(world.rolled)


def broken(how: str, data: bytes) -> bytes | None:
    """Return an offset index as accidents leave it; its entries are 8 bytes."""
    match how:
        case "missing":
            return None
        case "empty":
            return b""
        case "cut off":
            return data[: len(data) // 2 + 3]
        case "points between batches":
            return data[:4] + (int.from_bytes(data[4:8], "big") + 7).to_bytes(4, "big") + data[8:]
        case "names an offset too low":
            return (0).to_bytes(4, "big") + data[4:]
        case _:
            return data[:-8] + (10**6).to_bytes(4, "big") + data[-4:]


@pytest.mark.parametrize(
    "how", ["missing", "cut off", "points between batches", "names an offset too low", "reaches past the end"]
)
def test_an_offset_index_that_does_not_fit_its_log_is_rebuilt(how: str, new_world: NewWorld) -> None:
    world = new_world("none")
    base = max(world.rolled, key=lambda each: world.file(each).stat().st_size)
    file = world.file(base, ".index")
    good = file.read_bytes()
    assert len(good) >= 16
    bad = broken(how, good)
    file.unlink()
    if bad is not None:
        file.write_bytes(bad)
    world.process().copy_all()
    segment = next(each for each in world.view().readable if each.offsets.start == base)
    rebuilt = SegmentReader.open(world.store, segment.object_key).indexes(IndexKind.OFFSET)
    assert rebuilt
    assert rebuilt != bad
    entries = list(offset_index_entries(rebuilt, base, "object"))
    check = OffsetIndexCheck(entries, segment.offsets.end)
    for batch in world.batches(base):
        check.add(batch)
        assert lookup_position(entries, batch.base_offset) <= batch.position
    assert check.fits


@pytest.mark.parametrize("how", ["missing", "empty", "cut off", "too young", "too old", "wrong offset"])
def test_a_time_index_that_does_not_fit_its_log_is_rebuilt(how: str, new_world: NewWorld) -> None:
    world = new_world("none")
    base = max(world.rolled, key=lambda each: world.file(each, ".timeindex").stat().st_size)
    file = world.file(base, ".timeindex")
    good = file.read_bytes()
    assert len(good) >= 24, "the last entry alone is not what is tested"
    stamp = int.from_bytes(good[:8], "big")
    offset = int.from_bytes(good[8:12], "big")
    bad = {
        "missing": None,
        "empty": b"",
        "cut off": good[:17],
        "too young": (stamp + 1).to_bytes(8, "big") + good[8:],
        "too old": (stamp - 1).to_bytes(8, "big") + good[8:],
        "wrong offset": good[:8] + (offset + 40).to_bytes(4, "big") + good[12:],
    }[how]
    file.unlink()
    if bad is not None:
        file.write_bytes(bad)
    world.process().copy_all()
    segment = next(each for each in world.view().readable if each.offsets.start == base)
    rebuilt = SegmentReader.open(world.store, segment.object_key).indexes(IndexKind.TIME)
    assert rebuilt
    assert rebuilt != bad
    entries = list(time_index_entries(rebuilt, base, "object"))
    assert entries[-1].timestamp == segment.max_timestamp
    for entry in entries:
        older = lookup_offset(entries, entry.timestamp + 1)
        assert older is not None
        assert all(b.max_timestamp <= entry.timestamp for b in world.batches(base) if b.last_offset <= entry.offset)


def test_a_segment_that_begins_below_the_brokers_log_start_is_copied(new_world: NewWorld) -> None:
    """DeleteRecords into the middle of a segment cuts the broker's checkpoint there; the segment's file stays whole."""
    world = new_world("epochs")
    middle = world.bases[0] + 50
    world.broker.delete_records_on(BrokerId(1), world.name, 0, Offset(middle))
    world.retire()
    assert world.checkpoint()[0] == (0, middle)
    world.process().copy_all()
    view = world.view()
    assert view.coverage.prefix_end(middle) == world.bases[-1] - 1
    assert view.coverage.at(middle - 1) is None
    assert view.log_start == middle


def test_a_producer_snapshot_that_never_was_leaves_an_empty_one(world: World) -> None:
    for file in world.folder.glob("*.snapshot"):
        file.unlink()
    world.process().copy_all()
    for segment in world.view().readable:
        assert SegmentReader.open(world.store, segment.object_key).indexes(IndexKind.PRODUCER_SNAPSHOT) == b""
