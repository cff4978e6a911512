"""A read deep within a chunk in memory skips the batches before it by their headers, and checks their order."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fetch.two_tiers import Folder, TwoTiers
from tests.log.batches import Batch, record
from tierstate.fetch import locate
from tierstate.fetch.remote import RemoteTier
from tierstate.log.batch import iter_batches
from tierstate.runtime.clock import SystemClock
from tierstate.state.errors import CorruptData
from tierstate.state.ids import TopicId, TopicIdPartition
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.offsets import Offset, OffsetRange
from tierstate.state.routing import Isolation
from tierstate.state.segment import Compression, RemoteSegment
from tierstate.storage.memory import MemoryStore
from tierstate.storage.segment.cache import ChunkCache
from tierstate.storage.segment.reader import SegmentReader

BATCHES = [Batch(at, [record(0, None, b"%08d" % at)]).bytes for at in range(500)]
SIZE = len(BATCHES[0])
CHUNK = 200 * SIZE + 7
SECOND = 201
"""The first offset of the second chunk."""


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def segment(tmp_path: Path, store: MemoryStore) -> Iterator[RemoteSegment]:
    assert {len(batch) for batch in BATCHES} == {SIZE}
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(BATCHES))
    (tmp_path / f"{0:020d}.index").write_bytes(struct.pack(">ii", 0, 0))
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    folder = Folder(tmp_path)
    tiers = TwoTiers(TopicIdPartition(TopicId.of(b"golden-topic-id!"), 0), "t", store)
    tiers.compression = Compression.NONE
    tiers.elect(folder.lineage())
    yield tiers.copy(folder, 0, len(BATCHES), chunk_bytes=CHUNK)
    tiers.view.close()


@pytest.fixture
def remote(store: MemoryStore) -> RemoteTier:
    return RemoteTier(store, ChunkCache(1 << 20), SystemClock())


def first_of(remote: RemoteTier, segment: RemoteSegment, offset: int) -> int:
    offsets = OffsetRange(Offset(offset), segment.offsets.end)
    piece = remote.read(segment, offsets, 3 * SIZE, Isolation.READ_UNCOMMITTED)
    return next(iter_batches(piece.data, source="piece")).base_offset


def test_the_first_batch_of_a_chunk_is_looked_for_once(
    remote: RemoteTier, segment: RemoteSegment, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert first_of(remote, segment, SECOND + 20) == SECOND + 20
    monkeypatch.setattr(locate, "proven_batch", None)
    assert first_of(remote, segment, SECOND + 150) == SECOND + 150
    assert first_of(remote, segment, SECOND) == SECOND


def test_batches_before_the_wanted_one_are_skipped_at_once(
    remote: RemoteTier, segment: RemoteSegment, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (0, SECOND):
        first_of(remote, segment, place)
    ranges, plain_range = list[int](), SegmentReader.plain_range

    def counted(reader: SegmentReader, start: int, stop: int, *, alone: bool = False) -> Iterator[bytes | memoryview]:
        ranges.append(start)
        return plain_range(reader, start, stop, alone=alone)

    monkeypatch.setattr(SegmentReader, "plain_range", counted)
    for offset in (SECOND + 150, SECOND + 199, 150):
        assert first_of(remote, segment, offset) == offset
    assert ranges == [offset * SIZE for offset in (SECOND + 150, SECOND + 199, 150)]


def test_skipped_batches_have_to_be_in_order(remote: RemoteTier, store: MemoryStore, segment: RemoteSegment) -> None:
    key = object_key(segment.object_key, ObjectKind.LOG)
    store.delete(key)
    swapped = [*BATCHES]
    swapped[SECOND + 50 : SECOND + 52] = reversed(swapped[SECOND + 50 : SECOND + 52])
    store.put_if_absent(key, b"".join(swapped))
    assert first_of(remote, segment, SECOND) == SECOND
    with pytest.raises(CorruptData, match="does not begin where"):
        first_of(remote, segment, SECOND + 150)


def test_bytes_that_look_like_the_first_batch_are_not_taken_for_it(
    remote: RemoteTier, store: MemoryStore, segment: RemoteSegment
) -> None:
    """Two such places overlap at the end of the batch before."""
    sign = (SECOND).to_bytes(8, "big")
    position = locate.proven_batch(remote.open(segment), 1, memoryview(sign[1:] + sign + BATCHES[SECOND]), "test")
    assert position == 15
