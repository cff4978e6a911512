"""Wires a reader of both tiers from the caller's view, cluster and store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..broker.control import TopicDirectory
from ..broker.open import Broker
from ..runtime.clock import Clock
from ..runtime.listener import Listener, ignore
from ..runtime.settings import Cache
from ..state.object_keys import ObjectKeys
from ..state.view import TierView
from ..storage.object_store import ObjectReader
from ..storage.segment.cache import CacheCounts, ChunkCache
from ..storage.segment.disk_cache import DiskCounts, lacking_bytes, open_disk_cache
from ..storage.segment.encryption import KeyUnwrapper
from .gone import NoBroker, PastRemote
from .local import BrokerTier
from .reader import LogReader
from .remote import PLAIN_NAMES, RemoteTier

if TYPE_CHECKING:
    from ..runtime.metrics import Metrics, Sample

CHUNKS_FOLDER = "chunks"
MEMORY, DISK = ("memory",), ("disk",)


@dataclass(frozen=True, slots=True)
class Reading:
    """Options for reading the remote tier. ``cache``: its disk part needs ``state_dir`` and is stored in it. ``keys``:
    the key ring that opens encrypted segments. ``names``: how the cluster's agents name objects.
    """

    cache: Cache = field(default_factory=Cache)
    state_dir: Path | None = None
    keys: KeyUnwrapper | None = None
    names: ObjectKeys = PLAIN_NAMES


def open_reader(
    view: TierView,
    broker: Broker,
    store: ObjectReader,
    clock: Clock,
    reading: Reading | None = None,
    listener: Listener = ignore,
) -> LogReader:
    """Return a reader. ``reading`` None: defaults. Raises as `open_remote`. Closing it does not close the arguments."""
    remote = open_remote(store, clock, reading or Reading(), listener)
    return LogReader(view, broker.control, BrokerTier(broker), remote, clock)


def open_past_reader(
    view: TierView,
    topics: TopicDirectory,
    store: ObjectReader,
    clock: Clock,
    reading: Reading,
    listener: Listener = ignore,
) -> LogReader:
    """Return a reader of the remote tier only, by a view that is not updated, without a broker.

    Raises as `open_remote`."""
    remote = open_remote(store, clock, reading, listener, PastRemote)
    return LogReader(view, topics, NoBroker(view), remote, clock)


def open_remote(
    store: ObjectReader,
    clock: Clock,
    reading: Reading,
    listener: Listener = ignore,
    tier: type[RemoteTier] = RemoteTier,
) -> RemoteTier:
    """Return the remote tier. Raises InvalidRequest when the folder of the disk cache holds something else."""
    return tier(
        store,
        open_cache(reading, listener),
        clock,
        keys=reading.keys,
        names=reading.names,
        prefetch=reading.cache.prefetch,
        listener=listener,
    )


def open_cache(reading: Reading, listener: Listener = ignore) -> ChunkCache:
    """Return the chunk cache. Raises InvalidRequest when the folder of the disk cache holds something else."""
    cache, disk = reading.cache, None
    if cache.disk and reading.state_dir is not None:
        disk = open_disk_cache(reading.state_dir / CHUNKS_FOLDER, cache.disk, listener)
    return ChunkCache(cache.memory, disk)


def make_room(cache: Cache, state_dir: Path, listener: Listener = ignore) -> None:
    """Shrink the disk cache if its disk lacks room for the view. Call this before the cache is opened.

    Raises InvalidRequest when the folder of the disk cache holds something else.
    """
    folder = state_dir / CHUNKS_FOLDER
    if cache.disk and folder.is_dir() and lacking_bytes(folder) > 0:
        if disk := open_disk_cache(folder, cache.disk, listener):
            disk.close()


def add_cache_gauges(metrics: Metrics, remote: RemoteTier) -> None:
    """Register the cache's metrics. Without a disk cache there is no level ``disk``."""
    cache = remote.cache

    def by_level(read: Callable[[CacheCounts | DiskCounts], int]) -> Callable[[], list[Sample]]:
        def samples() -> list[Sample]:
            levels: list[Sample] = [(MEMORY, read(cache.counts))]
            return levels if cache.disk is None else [*levels, (DISK, read(cache.disk.counts))]

        return samples

    metrics.tally("tierstate_chunk_cache_hits_total", by_level(lambda counts: counts.hits))
    metrics.tally("tierstate_chunk_cache_misses_total", by_level(lambda counts: counts.misses))
    if (disk := cache.disk) is not None:
        metrics.tally("tierstate_chunk_cache_damaged_total", lambda: [((), disk.counts.damaged)])
