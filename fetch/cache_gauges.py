"""The chunk cache, as metrics of a process that serves readers."""

from __future__ import annotations

from collections.abc import Callable

from ..runtime.metrics import Metrics, Sample
from ..storage.segment.cache import CacheCounts
from ..storage.segment.disk_cache import DiskCounts
from .remote import RemoteTier

MEMORY, DISK = ("memory",), ("disk",)


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
