"""A manifest's chunk table is checked against the batches in the log: no other check would find a wrong table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.leader.recovery import rewrite
from tests.leader.world import World
from tests.log.batches import GZIP, Batch, marker, plain_batch, record
from tests.storage.conftest import BASE_KEY, WriteSegment
from tests.storage.conftest import write_segment as write_segment
from tierstate.fetch import verify_batches
from tierstate.fetch.verify import Finding, Severity
from tierstate.fetch.verify_batches import ChunkTable
from tierstate.fetch.verify_objects import Verifier
from tierstate.leader import checked_log
from tierstate.log.batch import TRANSACTIONAL, BatchHeader
from tierstate.state.errors import CorruptData
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.offsets import Offset
from tierstate.storage.memory import MemoryStore
from tierstate.storage.segment.chunks import first_offsets
from tierstate.storage.segment.manifest import SegmentManifest
from tierstate.storage.segment.reader import read_manifest

CHUNK_BYTES, PLAIN = 1000, 4000
SIZES = (1, 40, 3, 500, 2500, 1, 1, 200, 90)
"""The sizes of values: some chunks begin inside a batch, and in some no batch begins."""


@pytest.fixture
def segment(write_segment: WriteSegment) -> tuple[bytes, SegmentManifest]:
    """Return a log, and a manifest that describes it correctly."""
    log, starts = b"", list[tuple[int, Offset]]()
    for number, size in enumerate(SIZES):
        offset = Offset(1234 + 10 * number)
        starts.append((len(log), offset))
        log += Batch(offset, [record(0, None, b"v" * size)]).bytes
    store = MemoryStore()
    write_segment(store, log, chunk_bytes=CHUNK_BYTES)
    manifest = read_manifest(store, BASE_KEY)
    assert manifest.tierstate is not None
    firsts = first_offsets(starts, CHUNK_BYTES, len(log))
    assert None in firsts
    return log, replace(manifest, tierstate=replace(manifest.tierstate, chunk_first_offsets=firsts))


def check(log: bytes, manifest: SegmentManifest, piece_bytes: int = 777) -> None:
    table = ChunkTable(BASE_KEY, manifest)
    for at in range(0, len(log), piece_bytes):
        table.take(log[at : at + piece_bytes])
    table.check()


@pytest.mark.parametrize("piece_bytes", [1, 7, 60, 61, 62, 777, 1000, 1 << 20])
def test_a_true_table_is_right_however_the_log_comes(segment: tuple[bytes, SegmentManifest], piece_bytes: int) -> None:
    check(*segment, piece_bytes)


def test_every_wrong_entry_is_named_by_its_chunk(segment: tuple[bytes, SegmentManifest]) -> None:
    log, manifest = segment
    block = manifest.tierstate
    assert block is not None
    for chunk, offset in enumerate(block.chunk_first_offsets):
        for wrong in (None, Offset(0), Offset((offset or 0) ^ 8)):
            if wrong == offset:
                continue
            firsts = (*block.chunk_first_offsets[:chunk], wrong, *block.chunk_first_offsets[chunk + 1 :])
            lying = replace(manifest, tierstate=replace(block, chunk_first_offsets=firsts))
            with pytest.raises(CorruptData) as raised:
                check(log, lying)
            assert raised.value.facts["chunk"] == chunk
            assert raised.value.facts["file"] == object_key(BASE_KEY, ObjectKind.MANIFEST)


@pytest.mark.parametrize("piece_bytes", [1, 777])
def test_a_log_that_is_not_whole_batches_is_corrupt(segment: tuple[bytes, SegmentManifest], piece_bytes: int) -> None:
    log, manifest = segment
    third = log.index((1234 + 20).to_bytes(8, "big"))
    backwards = log[: third + 8] + (-12).to_bytes(4, "big", signed=True) + log[third + 12 :]
    old = log[: third + 16] + b"\x01" + log[third + 17 :]
    for damaged in (log[:-1], log + b"\0", log + bytes(100), backwards, old):
        with pytest.raises(CorruptData, match="whole batches"):
            check(damaged, manifest, piece_bytes)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    new_world = World(tmp_path, "none", {"local.retention.bytes": "0"})
    new_world.clock.advance(10 * 365 * 86_400.0)  # so that no record is from the future
    new_world.process().work()
    yield new_world
    new_world.close()


def verify(world: World, level: int) -> list[Finding]:
    verifier = Verifier(world.store, level, lambda partition: world.view())
    return list(verifier.objects(world.view()))


def test_a_flipped_digit_in_the_chunk_table_is_found_at_level_3(world: World) -> None:
    segment = world.view().readable[1]

    def flip(manifest: SegmentManifest) -> SegmentManifest:
        block = manifest.tierstate
        assert block is not None
        first, *rest = block.chunk_first_offsets
        assert first is not None
        return replace(manifest, tierstate=replace(block, chunk_first_offsets=(Offset(first ^ 1), *rest)))

    assert not verify(world, 3)
    rewrite(world, segment, flip)
    assert not verify(world, 2)
    (finding,) = verify(world, 3)
    assert (finding.level, finding.severity) == (3, Severity.CORRUPT)
    assert finding.object == object_key(segment.object_key, ObjectKind.MANIFEST)
    assert "chunk=0" in finding.what


@pytest.mark.parametrize("piece_bytes", [1, 7, 60, 61, 77, 78, 79, 777, 1 << 20])
def test_batches_of_transactions_are_handed_on_and_markers_whole_however_the_log_comes(
    segment: tuple[bytes, SegmentManifest], piece_bytes: int
) -> None:
    data = (
        plain_batch(0, 2)
        + plain_batch(2, 2, producer=7, attributes=TRANSACTIONAL)
        + marker(4, 7, 0)
        + plain_batch(5, 1, producer=8)
        + marker(6, 8, 1)
    )
    control: list[tuple[int, bytes]] = []

    def take(batch: BatchHeader, window: bytes, position: int) -> None:
        at = batch.position - position
        control.append((batch.base_offset, window[at : at + batch.size_bytes] if batch.is_control else b""))

    table = ChunkTable(BASE_KEY, segment[1], take)
    for at in range(0, len(data), piece_bytes):
        table.take(data[at : at + piece_bytes])
    assert control == [(2, b""), (4, marker(4, 7, 0)), (6, marker(6, 8, 1))]


@pytest.mark.parametrize("older", [False, True], ids=["noted", "of a release that noted none"])
def test_a_batch_that_kafka_serves_and_readers_refuse_is_found_at_level_3(
    older: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, "none", {"local.retention.bytes": "-1"})
    batch = world.lift_record(world.bases[1])
    world.clock.advance(10 * 365 * 86_400.0)
    with monkeypatch.context() as release:
        if older:
            release.setattr(checked_log, "is_decodable", lambda data, at, batch: True)
        world.process().work()
    segment = world.view().readable[1]
    block = read_manifest(world.store, object_key(segment.object_key, ObjectKind.MANIFEST)).tierstate
    assert block is not None
    assert block.undecodable == (None if older else batch)
    assert not verify(world, 2)
    (finding,) = verify(world, 3)
    assert (finding.level, finding.severity, finding.segment_id) == (3, Severity.FINDING, segment.segment_id)
    assert f"the batch at offset {batch}" in finding.what
    world.close()


@pytest.mark.parametrize("piece_bytes", [1, 61, 777, 1 << 20])
def test_records_are_looked_at_however_the_log_comes(
    segment: tuple[bytes, SegmentManifest], piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifted = [record(0, None, bytes(2000)), record(9, None, b"")]
    packed, long = Batch(3, lifted, GZIP, TRANSACTIONAL, 7).bytes, Batch(5, [record(8, None, bytes(PLAIN))]).bytes
    monkeypatch.setattr(verify_batches, "PLAIN_BYTES", PLAIN)
    data = plain_batch(0, 2) + marker(2, 7, 0) + packed + long + Batch(7, lifted).bytes + Batch(9, lifted).bytes
    table = ChunkTable(BASE_KEY, segment[1])
    for at in range(0, len(data), piece_bytes):
        assert len(table._tail) <= PLAIN
        table.take(data[at : at + piece_bytes])
    assert table.undecodable == 7
