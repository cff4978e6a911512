"""A store that returns wrong bytes once: its objects are read once more, past all caches, before an error is raised."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fetch.two_tiers import Golden
from tierstate.fetch.remote import RemotePiece, RemoteTier
from tierstate.log.batch import iter_batches
from tierstate.runtime.clock import SystemClock
from tierstate.state.errors import CorruptData
from tierstate.state.offsets import ByteRange
from tierstate.state.routing import Isolation
from tierstate.state.segment import Compression
from tierstate.storage.object_store import MIB
from tierstate.storage.segment.cache import ChunkCache
from tierstate.storage.segment.disk_cache import open_disk_cache

Make = Callable[..., Golden]
LEVEL = Isolation.READ_UNCOMMITTED


class WrongAtFirst:
    """A store whose first ``times`` reads of objects with this suffix have one wrong byte. `reads` counts them all."""

    def __init__(self, store: Any, suffix: str, byte: int, times: int) -> None:
        self._store, self._suffix, self._byte, self.left = store, suffix, byte, times
        self.reads = 0

    def get(self, key: str, limit: int | None = None) -> bytes:
        return self._changed(key, self._store.get(key, limit))

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        yield self._changed(key, b"".join(self._store.stream_range(key, range, piece_bytes)))

    def _changed(self, key: str, data: bytes) -> bytes:
        if not key.endswith(self._suffix):
            return data
        self.reads += 1
        if self.left <= 0 or len(data) <= self._byte:
            return data
        self.left -= 1
        return data[: self._byte] + bytes([data[self._byte] ^ 64]) + data[self._byte + 1 :]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


DAMAGES = {"a record": (".log", 70), "a base offset": (".log", 3), "the manifest": (".rsm-manifest", 2)}


def remote_of(golden: Golden, damage: str, times: int) -> tuple[RemoteTier, WrongAtFirst]:
    store: Any = WrongAtFirst(golden.tiers.store, *DAMAGES[damage], times)
    return RemoteTier(store, ChunkCache(MIB), SystemClock()), store


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_read_that_meets_wrong_bytes_once_gets_the_right_ones(golden_log: Make, damage: str) -> None:
    golden = golden_log("none", compression=Compression.NONE)
    segment = golden.segments[0]
    right = bytes(golden.remote.read(segment, segment.offsets, MIB, LEVEL).data)
    remote, _ = remote_of(golden, damage, times=1)
    assert bytes(remote.read(segment, segment.offsets, MIB, LEVEL).data) == right
    assert bytes(remote.read(segment, segment.offsets, MIB, LEVEL).data) == right


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_object_that_stays_wrong_is_read_at_most_four_times_and_called_damaged(
    golden_log: Make, damage: str
) -> None:
    golden = golden_log("none", compression=Compression.NONE)
    segment = golden.segments[0]
    remote, store = remote_of(golden, damage, times=1_000)
    with pytest.raises(CorruptData):
        decoded(remote.read(segment, segment.offsets, MIB, LEVEL))
    right, counted = remote_of(golden, damage, times=0)
    decoded(right.read(segment, segment.offsets, MIB, LEVEL))
    assert 0 < counted.reads < store.reads <= 4 * counted.reads


def decoded(piece: RemotePiece) -> None:
    """Check each batch, like every reader that decodes."""
    assert list(iter_batches(piece.data, source="piece"))


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_after_a_second_read_that_was_right_no_cache_has_the_wrong_bytes(
    golden_log: Make, tmp_path: Path, where: str
) -> None:
    golden = golden_log("none", compression=Compression.NONE, foreign=True, older=True)
    segment, store = golden.segments[0], WrongAtFirst(golden.tiers.store, ".log", 70, times=1)
    right = bytes(golden.remote.read(segment, segment.offsets, MIB, LEVEL).data)
    disk = open_disk_cache(tmp_path / "cache", 100 * MIB) if where == "disk" else None
    made: Any = store
    remote = RemoteTier(made, ChunkCache(MIB, disk), SystemClock())
    for _ in range(2):  # the second one fills the cache
        assert bytes(remote.read(segment, segment.offsets, MIB, LEVEL).data) == right
    before = store.reads
    if where == "disk":
        remote = RemoteTier(made, ChunkCache(MIB, disk), SystemClock())
    assert bytes(remote.read(segment, segment.offsets, MIB, LEVEL).data) == right
    assert store.reads == before
    remote.close()


@pytest.mark.parametrize("times", [1, 1_000])
def test_a_batch_with_a_wrong_crc_is_read_once_more_past_the_cache(golden_log: Make, times: int) -> None:
    """Objects of Aiven's plugin have no checksums of their chunks, so the wrong bytes are in the cache."""
    golden = golden_log("none", compression=Compression.NONE, foreign=True, older=True)
    segment = golden.segments[0]
    right = bytes(golden.remote.read(segment, segment.offsets, MIB, LEVEL).data)
    remote, _ = remote_of(golden, "a record", times)
    if times == 1:
        assert bytes(remote.read(segment, segment.offsets, MIB, LEVEL).data) == right
    else:
        with pytest.raises(CorruptData):
            decoded(remote.read(segment, segment.offsets, MIB, LEVEL))


def test_only_bytes_that_the_manifest_proves_are_sent_without_a_comparison_of_their_crcs(golden_log: Make) -> None:
    """The proxy decodes nothing, and librdkafka checks no CRC: `as_written` compares those of other pieces."""
    golden = golden_log("none", compression=Compression.NONE)
    segment = golden.segments[0]
    assert golden.remote.read(segment, segment.offsets, MIB, LEVEL).proven
    remote, _ = remote_of(golden, "a record", times=1_000)
    assert not remote.read(segment, segment.offsets, MIB, LEVEL).proven
    foreign = golden_log("none", compression=Compression.NONE, foreign=True, older=True)
    assert not foreign.remote.read(foreign.segments[0], foreign.segments[0].offsets, MIB, LEVEL).proven
