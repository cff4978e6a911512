"""Requests of readers to the store, the metrics that count them, and the requests that the disk cache saves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fetch.two_tiers import Golden
from tierstate.fetch.open import Reading, add_cache_gauges, open_remote
from tierstate.fetch.remote import RemoteTier
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.listener import ChunkCacheOff, Event, RemoteFetched, fan_out
from tierstate.runtime.metrics import Metrics
from tierstate.runtime.settings import Cache
from tierstate.state.errors import StorageUnavailable
from tierstate.state.offsets import Offset, OffsetRange
from tierstate.state.routing import Isolation
from tierstate.storage.segment.cache import ChunkCache

Make = Callable[..., Golden]


def test_the_reported_bytes_are_those_that_the_store_gave(golden_log: Make) -> None:
    golden = golden_log("none")
    segment = golden.segments[0]
    events: list[Event] = []
    remote = RemoteTier(golden.tiers.store, ChunkCache(1 << 20), SystemClock(), listener=events.append)
    for _ in range(3):
        remote.read(segment, segment.offsets, 1 << 20, Isolation.READ_UNCOMMITTED)
    requests = [(event.object_key, event.bytes) for event in events if isinstance(event, RemoteFetched)]
    assert requests == [
        (segment.object_key + ".rsm-manifest", segment.manifest_bytes),
        (segment.object_key + ".log", segment.log_object_bytes),
    ]


def test_a_failed_request_is_reported_too(golden_log: Make) -> None:
    golden = golden_log("none")
    golden.local.local_start = golden.folder.bases[-1]

    def fail(key: str) -> None:
        raise StorageUnavailable("the store does not answer")

    golden.gets.append(fail)
    with pytest.raises(StorageUnavailable):
        golden.reader.fetch("t", 0, 0)
    assert [(event.object_key[-8:], event.bytes) for event in golden.fetched] == [("manifest", 0)]


def test_a_time_is_looked_for_in_the_store_only_below_what_the_broker_has(golden_log: Make) -> None:
    golden = golden_log("none")  # all but the end is copied
    golden.reader.offset_for_time("t", 0, 0)
    assert golden.fetched == []
    golden.local.local_start = golden.folder.bases[-1]
    record = golden.reader.offset_for_time("t", 0, 0)
    assert (record and record[0], len(golden.fetched) > 0) == (0, True)


def test_a_cold_point_read_costs_two_requests_whatever_the_size_of_the_cache(golden_log: Make) -> None:
    """The chunk in which the batch is looked up is the chunk from which it is read."""
    golden = golden_log("none", chunk_bytes=16 * 1024)
    segment = golden.segments[0]
    middle = OffsetRange(Offset(segment.offsets.end - 200), segment.offsets.end)
    for size in (1 << 20, 10):
        events: list[Event] = []
        remote = RemoteTier(golden.tiers.store, ChunkCache(size), SystemClock(), listener=events.append)
        remote.read(segment, middle, 100, Isolation.READ_UNCOMMITTED)
        assert len(events) == 2


def opened(golden: Golden, state_dir: Path, metrics: Metrics, told: list[Event], disk: int = 1 << 20) -> RemoteTier:
    return open_remote(
        golden.tiers.store,
        SystemClock(),
        Reading(Cache(memory=0, disk=disk, prefetch=0), state_dir),
        fan_out(metrics.listen, told.append),
    )


def sample(metrics: Metrics, line: str) -> float:
    lines = [text for text in metrics.exposition().decode().splitlines() if text.startswith(line + " ")]
    return float(lines[0].rpartition(" ")[2])


def test_the_disk_spares_the_store_after_a_restart_and_the_metrics_say_so(golden_log: Make, tmp_path: Path) -> None:
    golden = golden_log("none")
    segment = golden.segments[0]
    for start in ("first", "second"):
        metrics, events = Metrics(), list[Event]()
        remote = opened(golden, tmp_path, metrics, events)
        add_cache_gauges(metrics, remote)
        remote.read(segment, segment.offsets, 1 << 20, Isolation.READ_UNCOMMITTED)
        remote.close()
        chunks = remote.open(segment).manifest.chunks.count
        fetched = segment.manifest_bytes + (segment.log_object_bytes if start == "first" else 0)
        assert sample(metrics, "tierstate_remote_fetch_bytes_total") == fetched
        hits = 0 if start == "first" else chunks
        assert sample(metrics, 'tierstate_chunk_cache_hits_total{level="disk"}') == hits
        assert sample(metrics, 'tierstate_chunk_cache_misses_total{level="disk"}') == chunks - hits
        assert sample(metrics, 'tierstate_chunk_cache_misses_total{level="memory"}') == chunks
        assert sample(metrics, "tierstate_chunk_cache_damaged_total") == 0


def test_a_second_process_reads_without_the_disk_and_says_so(golden_log: Make, tmp_path: Path) -> None:
    golden = golden_log("none")
    events: list[Event] = []
    first = opened(golden, tmp_path, Metrics(), events)
    metrics = Metrics()
    second = opened(golden, tmp_path, metrics, events)
    assert events == [ChunkCacheOff(str(tmp_path / "chunks"), "another process uses it")]
    assert sample(metrics, "tierstate_chunk_cache_off_total") == 1
    segment = golden.segments[0]
    assert second.read(segment, segment.offsets, 1 << 20, Isolation.READ_UNCOMMITTED).data
    second.close()
    first.close()


def test_without_the_setting_nothing_is_written_to_disk(golden_log: Make, tmp_path: Path) -> None:
    remote = opened(golden_log("none"), tmp_path, Metrics(), [], disk=0)
    remote.close()
    assert list(tmp_path.iterdir()) == []
