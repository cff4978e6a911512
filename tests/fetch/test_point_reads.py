"""A read far from the last one decodes only what it needs of a compressed segment; the next one gets whole chunks."""

from __future__ import annotations

import random

import pytest

from tests.log.batches import Batch, record
from tests.storage.conftest import WriteSegment
from tests.storage.conftest import write_segment as write_segment
from tierstate.fetch.remote import RemoteTier
from tierstate.log.batch import iter_batches
from tierstate.runtime.clock import SystemClock
from tierstate.state.offsets import Offset, OffsetRange
from tierstate.state.routing import Isolation
from tierstate.state.segment import Compression, RemoteSegment
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import MIB
from tierstate.storage.segment.cache import ChunkCache
from tierstate.storage.segment.reader import read_manifest

FIRST, BATCHES = 1234, 1100
CHANCE = random.Random(7)
LOG = b"".join(Batch(FIRST + at, [record(0, b"k", CHANCE.randbytes(450) * 2)]).bytes for at in range(BATCHES))
STEP_BYTES = 128 * 1024
CHUNK = 8 * STEP_BYTES
ROOM = 10_000


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def remote(store: MemoryStore) -> RemoteTier:
    return RemoteTier(store, ChunkCache(100 * MIB), SystemClock())


@pytest.fixture
def segment(store: MemoryStore, write_segment: WriteSegment) -> RemoteSegment:
    assert CHUNK < len(LOG) < 2 * CHUNK
    return write_segment(store, LOG, compression=Compression.ZSTD, chunk_bytes=CHUNK)


def read(remote: RemoteTier, segment: RemoteSegment, start: int) -> tuple[int, int]:
    """Return the first offset that a read brings, and where to go on."""
    offsets = OffsetRange(Offset(start), segment.offsets.end)
    piece = remote.read(segment, offsets, ROOM, Isolation.READ_UNCOMMITTED)
    return next(iter_batches(piece.data, source="piece")).base_offset, piece.next_offset


def test_a_read_from_the_middle_of_a_chunk_opens_it_up_to_there(remote: RemoteTier, segment: RemoteSegment) -> None:
    stored = read_manifest(remote.store, segment.object_key).chunks.chunk(0).stored_size
    assert read(remote, segment, FIRST + 300)[0] == FIRST + 300
    reached = LOG.index(Batch(FIRST + 300, [record(0, b"k", b"")]).bytes[:8]) + ROOM
    assert reached < remote.cache.counts.bytes - stored < reached + ROOM + STEP_BYTES


def test_a_read_that_goes_on_gets_the_whole_chunk_at_once(remote: RemoteTier, segment: RemoteSegment) -> None:
    _, following = read(remote, segment, FIRST + 300)
    assert read(remote, segment, following)[0] == following
    assert remote.cache.counts.bytes == CHUNK
