"""The chunk cache and what is loaded ahead, as metrics of a process that serves readers."""

from __future__ import annotations

from collections.abc import Callable

from ..runtime.metrics import Metrics, Sample
from ..storage.segment.cache import CacheCounts
from ..storage.segment.disk_cache import DiskCounts
from .remote import RemoteTier

MEMORY, DISK = ("memory",), ("disk",)


def add_cache_gauges(metrics: Metrics, remote: RemoteTier) -> None:
    """Without a disk cache there is no level ``disk``."""
    cache, prefetch = remote.cache, remote.prefetch

    def by_level(read: Callable[[CacheCounts | DiskCounts], int]) -> Callable[[], list[Sample]]:
        def samples() -> list[Sample]:
            found: list[Sample] = [(MEMORY, read(cache.counts))]
            return found if cache.disk is None else [*found, (DISK, read(cache.disk.counts))]

        return samples

    metrics.gauge("tierstate_chunk_cache_hits_total", by_level(lambda counts: counts.hits))
    metrics.gauge("tierstate_chunk_cache_misses_total", by_level(lambda counts: counts.misses))
    metrics.gauge("tierstate_chunk_cache_evictions_total", by_level(lambda counts: counts.evictions))
    metrics.gauge("tierstate_chunk_cache_bytes", by_level(lambda counts: counts.bytes))
    if (disk := cache.disk) is not None:
        metrics.gauge("tierstate_chunk_cache_damaged_total", lambda: [((), disk.counts.damaged)])
    metrics.gauge("tierstate_prefetch_bytes_total", lambda: [((), prefetch.bytes)])
    metrics.gauge("tierstate_prefetch_failures_total", lambda: [((), prefetch.failures)])
