"""What a process counts and measures, in Prometheus' words. Counters listen to events; gauges ask when scraped.

`COUNTERS`, `SECONDS` and `GAUGES` are the whole list, and docs are made from it. Names follow KIP-405's stems.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import assert_never

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .listener import (
    ActFailed,
    CheckpointUsed,
    ChoreFailed,
    ChunkCacheOff,
    ConditionalPutIgnored,
    CopyFailed,
    CustodyStepTaken,
    Event,
    FactsApplied,
    FactsErased,
    HoldReported,
    KeyRingRead,
    KeyRingRefused,
    LocalTrimmed,
    LogFolderBack,
    LogFolderLost,
    LogStartMoved,
    OrphansFound,
    PartitionRefused,
    RemoteFetched,
    SecondValueSeen,
    SegmentCopied,
    SegmentDeleteBegan,
    SegmentDeleted,
    StoreThrottled,
    TermEnded,
    TermStarted,
    TransactionIndexRebuilt,
    TrimRefused,
    ViewRebuilt,
    WriteRepeated,
)

COUNTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "tierstate_store_throttled_total": ("Times the object store asked to slow down.", ()),
    "tierstate_store_throttled_seconds_total": ("Seconds waited because it did.", ()),
    "tierstate_store_repeated_bytes_total": ("Bytes sent to the object store once more, because a write failed.", ()),
    "tierstate_store_conditional_puts_ignored_total": (
        "Starts at which the store was seen to ignore If-None-Match.",
        (),
    ),
    "tierstate_remote_copy_segments_total": ("Segments copied to the remote tier.", ("topic",)),
    "tierstate_remote_copy_bytes_total": ("Log bytes copied to the remote tier.", ("topic",)),
    "tierstate_remote_copy_object_bytes_total": ("Bytes of the objects written for them.", ("topic",)),
    "tierstate_remote_copy_errors_total": ("Copy attempts that ended without a segment.", ("topic",)),
    "tierstate_transaction_indexes_rebuilt_total": (
        "Copies whose transaction index was made from the markers: the broker's contradicts them.",
        ("topic",),
    ),
    "tierstate_local_trims_total": ("Trims of the local tier.", ("topic",)),
    "tierstate_local_trim_refusals_total": (
        "Times the local tier was not trimmed, though something asked for it.",
        ("topic",),
    ),
    "tierstate_log_start_moves_total": ("Times retention or an order moved the log start.", ("topic",)),
    "tierstate_remote_delete_requests_total": ("Remote segments condemned.", ("topic",)),
    "tierstate_remote_deleted_segments_total": ("Remote segments whose objects are gone.", ("topic",)),
    "tierstate_remote_deleted_object_bytes_total": ("Bytes of their objects.", ("topic",)),
    "tierstate_facts_erased_total": ("Facts erased because they can never matter again.", ("topic",)),
    "tierstate_act_failures_total": ("Acts about the remote tier that ended early.", ("topic",)),
    "tierstate_chore_failures_total": ("Archiving, checkpoints or custody that failed.", ("chore",)),
    "tierstate_orphan_looks_total": ("Times all objects of a partition were compared with the facts.", ("topic",)),
    "tierstate_orphan_objects_seen_total": ("Objects that no fact names, added up over those looks.", ("topic",)),
    "tierstate_custodian_steps_total": ("Acts about partitions whose topic is gone.", ()),
    "tierstate_integrity_holds_reported_total": (
        "Holds that agents wrote because two facts contradict each other.",
        (),
    ),
    "tierstate_terms_started_total": ("Terms begun.", ()),
    "tierstate_terms_ended_total": ("Terms stopped.", ()),
    "tierstate_partition_refusals_total": ("Times a partition was found not to be tiered.", ("topic",)),
    "tierstate_view_rebuilds_total": ("Views thrown away and replayed.", ()),
    "tierstate_view_checkpoints_used_total": (
        "Tier-state partitions of which an empty view began with a checkpoint.",
        (),
    ),
    "tierstate_facts_applied_total": ("Facts applied to the view.", ()),
    "tierstate_second_values_total": ("Keys of the tier-state topic under which a second value landed.", ()),
    "tierstate_key_ring_reads_total": ("Times the key ring's file changed and was read again.", ()),
    "tierstate_key_ring_refusals_total": ("Times it changed and could not be used: the ring before goes on.", ()),
    "tierstate_log_folders_lost_total": ("Times the agent lost one of its broker's log folders, and went on.", ()),
    "tierstate_log_folders_back_total": ("Times one came back: as many as were lost, or one lacks.", ()),
    "tierstate_remote_fetch_bytes_total": ("Bytes read from the object store for readers.", ()),
    "tierstate_remote_fetch_requests_total": (
        "Reads of the object store for readers: manifests, indexes, runs of chunks.",
        (),
    ),
    "tierstate_chunk_cache_off_total": ("Times the disk cache was not used, or turned itself off.", ()),
}
SECONDS: Mapping[str, str] = {
    "tierstate_remote_copy_seconds": "From copy-started to copy-finished, a segment.",
    "tierstate_remote_fetch_seconds": "One read of the object store.",
}
_PARTITION = ("topic", "partition")
GAUGES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "tierstate_remote_copy_lag_bytes": ("Bytes of rolled segments that are not copied.", _PARTITION),
    "tierstate_remote_copy_lag_segments": ("Rolled segments that are not copied.", _PARTITION),
    "tierstate_remote_delete_lag_bytes": ("Bytes of segments whose deletion has begun and not ended.", _PARTITION),
    "tierstate_remote_delete_lag_segments": ("Segments whose deletion has begun and not ended.", _PARTITION),
    "tierstate_remote_log_size_bytes": ("Log bytes in the remote tier.", _PARTITION),
    "tierstate_remote_log_segments": ("Segments in the remote tier.", _PARTITION),
    "tierstate_overlap_bytes": ("Bytes in the remote tier that another segment holds too.", _PARTITION),
    "tierstate_uncopied_expires_in_seconds": ("Until the broker expires something that is not copied.", _PARTITION),
    "tierstate_lso_pinned_seconds": ("How long an open transaction has held the last stable offset.", _PARTITION),
    "tierstate_out_of_lineage_segments": ("Segments on a branch of the log that lost an election.", _PARTITION),
    "tierstate_abandoned_segments": ("Copies whose term ended before they did.", _PARTITION),
    "tierstate_refused_partitions": ("Partitions that are not tiered, by reason.", ("reason",)),
    "tierstate_partitions_not_copied": (
        "Partitions led here of which no segment is copied now, by reason.",
        ("reason",),
    ),
    "tierstate_partitions_not_trimmed": (
        "Partitions led here of which no local space is freed now, by reason.",
        ("reason",),
    ),
    "tierstate_integrity_holds": ("Holds that a person must release.", ()),
    "tierstate_fenced_facts": ("Facts of terms that were over when they arrived, until they are erased.", ()),
    "tierstate_fenced_facts_total": ("The same, also those that were erased since.", ()),
    "tierstate_consecutive_failures": ("Failures in a row about a partition; 0: all is well.", _PARTITION),
    "tierstate_local_excess_bytes": (
        "Bytes of rolled segments that local retention lets go and the broker still has.",
        _PARTITION,
    ),
    "tierstate_gap_offsets": ("Offsets from the log start to the local start that neither tier has.", _PARTITION),
    "tierstate_cut_elsewhere_offsets": (
        "Offsets that neither a trim nor an order of ours took from the broker.",
        _PARTITION,
    ),
    "tierstate_future_segments": (
        "Remote segments with a timestamp of the future: their age counts from their copy.",
        _PARTITION,
    ),
    "tierstate_degraded_partitions": (
        "Partitions with facts that this version cannot read, or foreign ones beside them.",
        (),
    ),
    "tierstate_contradicted_partitions": ("Partitions whose accepted facts contradict each other.", ()),
    "tierstate_lineage_unknown_partitions": (
        "Partitions with remote segments that the lineage in force cannot place.",
        (),
    ),
    "tierstate_discovery_failing": (
        "1 while the agent cannot learn what its broker hosts; it decides nothing then.",
        (),
    ),
    "tierstate_partitions_not_seen": (
        "Partitions led here that are in no log folder of the agent: nobody copies them.",
        (),
    ),
    "tierstate_hung_threads": (
        "Threads of a loop that have been silent for longer than anything may take there.",
        ("loop",),
    ),
    "tierstate_loop_silent_seconds": ("Since a loop last went round, of its thread that is silent longest.", ("loop",)),
    "tierstate_object_store_away": ("1 while the object store did not answer when it was last asked.", ()),
    "tierstate_copy_quota_waited_seconds_total": ("Seconds that copies waited for copy.quota.", ()),
    "tierstate_view_age_seconds": ("Since the view was last known to be at the end of the topic.", ("tier_partition",)),
    "tierstate_history_broken": (
        "1: the tier-state topic has parted from its archive (an older backup was put back), and nothing is deleted.",
        (),
    ),
    "tierstate_topic_problems": ("Differences of the tier-state topic's configuration from what is safe.", ()),
    "tierstate_heads_lost": ("Partitions of the tier-state topic that do not begin at 0: facts are missing.", ()),
    "tierstate_apply_lag": ("Facts between the view and the end of the tier-state topic.", ("tier_partition",)),
    "tierstate_position": ("Position of the view.", ("tier_partition",)),
    "tierstate_orphan_objects": ("Objects that no fact names.", ()),
    "tierstate_missing_objects": (
        "Objects of readable segments that are not in the store as they must be.",
        _PARTITION,
    ),
    "tierstate_orphan_bytes": ("Their bytes.", ()),
    "tierstate_chunk_cache_hits_total": ("Chunks found, in memory also those being loaded.", ("level",)),
    "tierstate_chunk_cache_misses_total": ("Chunks not found.", ("level",)),
    "tierstate_chunk_cache_evictions_total": ("Chunks dropped for others.", ("level",)),
    "tierstate_chunk_cache_damaged_total": ("Files of the disk cache that were damaged, and dropped.", ()),
    "tierstate_chunk_cache_bytes": ("Bytes of chunks held.", ("level",)),
    "tierstate_prefetch_bytes_total": ("Log bytes loaded ahead of sequential readers.", ()),
    "tierstate_prefetch_failures_total": ("Loads ahead that failed; no reader saw it.", ()),
}

Sample = tuple[Sequence[str], float]
"""Label values in the order of `GAUGES`, and the value."""


class Metrics:
    """The metrics of one process object: a listener for what happens, and gauges that ask. Thread-safe."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._counters = {
            name: Counter(name.removesuffix("_total"), doc, labels, registry=self._registry)
            for name, (doc, labels) in COUNTERS.items()
        }
        self._seconds = {name: Histogram(name, doc, registry=self._registry) for name, doc in SECONDS.items()}
        self._gauges = _Gauges()
        self._topics: list[Callable[[], Iterable[str]]] = []
        self._registry.register(self._gauges)
        ProcessCollector(registry=self._registry)

    def listen(self, event: Event) -> None:
        """A `Listener`."""
        match event:
            case SegmentCopied():
                self._add("tierstate_remote_copy_segments_total", 1, event.topic)
                self._add("tierstate_remote_copy_bytes_total", event.log_bytes, event.topic)
                self._add("tierstate_remote_copy_object_bytes_total", event.object_bytes, event.topic)
                self._seconds["tierstate_remote_copy_seconds"].observe(event.seconds)
            case CopyFailed():
                self._add("tierstate_remote_copy_errors_total", 1, event.topic)
            case TransactionIndexRebuilt():
                self._add("tierstate_transaction_indexes_rebuilt_total", 1, event.topic)
            case LocalTrimmed():
                self._add("tierstate_local_trims_total", 1, event.topic)
            case TrimRefused():
                self._add("tierstate_local_trim_refusals_total", 1, event.topic)
            case LogStartMoved():
                self._add("tierstate_log_start_moves_total", 1, event.topic)
            case SegmentDeleteBegan():
                self._add("tierstate_remote_delete_requests_total", 1, event.topic)
            case SegmentDeleted():
                self._add("tierstate_remote_deleted_segments_total", 1, event.topic)
                self._add("tierstate_remote_deleted_object_bytes_total", event.object_bytes, event.topic)
            case FactsErased():
                self._add("tierstate_facts_erased_total", event.facts, event.topic)
            case ActFailed():
                self._add("tierstate_act_failures_total", 1, event.topic)
            case ChoreFailed():
                self._add("tierstate_chore_failures_total", 1, event.chore)
            case OrphansFound():
                self._add("tierstate_orphan_looks_total", 1, event.topic)
                self._add("tierstate_orphan_objects_seen_total", event.objects, event.topic)
            case CustodyStepTaken():
                self._add("tierstate_custodian_steps_total", 1)
            case HoldReported():
                self._add("tierstate_integrity_holds_reported_total", 1)
            case TermStarted():
                self._add("tierstate_terms_started_total", 1)
            case TermEnded():
                self._add("tierstate_terms_ended_total", 1)
            case PartitionRefused():
                self._add("tierstate_partition_refusals_total", 1, event.topic)
            case ViewRebuilt():
                self._add("tierstate_view_rebuilds_total", 1)
            case CheckpointUsed():
                self._add("tierstate_view_checkpoints_used_total", 1)
            case FactsApplied():
                self._add("tierstate_facts_applied_total", event.facts)
            case SecondValueSeen():
                self._add("tierstate_second_values_total", 1)
            case StoreThrottled():
                self._add("tierstate_store_throttled_total", 1)
                self._add("tierstate_store_throttled_seconds_total", event.seconds)
            case WriteRepeated():
                self._add("tierstate_store_repeated_bytes_total", event.bytes)
            case ConditionalPutIgnored():
                self._add("tierstate_store_conditional_puts_ignored_total", 1)
            case KeyRingRead():
                self._add("tierstate_key_ring_reads_total", 1)
            case KeyRingRefused():
                self._add("tierstate_key_ring_refusals_total", 1)
            case LogFolderLost():
                self._add("tierstate_log_folders_lost_total", 1)
            case LogFolderBack():
                self._add("tierstate_log_folders_back_total", 1)
            case RemoteFetched():
                self._add("tierstate_remote_fetch_requests_total", 1)
                self._add("tierstate_remote_fetch_bytes_total", event.bytes)
                self._seconds["tierstate_remote_fetch_seconds"].observe(event.seconds)
            case ChunkCacheOff():
                self._add("tierstate_chunk_cache_off_total", 1)
            case _:
                assert_never(event)

    def gauge(self, name: str, read: Callable[[], Iterable[Sample]]) -> None:
        """``read`` is called at every scrape, on the scraping thread. KeyError: a name that is not in `GAUGES`.

        A ``read`` that fails leaves its gauge out of that scrape: an absent metric can be alarmed on, a wrong one not.
        """
        self._gauges.add(name, GAUGES[name], read)

    def begin(self, name: str, *labels: str) -> None:
        """A counter begins at 0 for these labels: an alert sees an increase from there, not one that begins at 1."""
        self._counters[name].labels(*labels)

    def begin_topics(self, read: Callable[[], Iterable[str]]) -> None:
        """All counters by topic begin at 0 for the topics that ``read`` answers, at every scrape."""
        self._topics.append(read)

    def exposition(self) -> bytes:
        """Prometheus' text format."""
        topics = {topic for read in self._topics for topic in read()}
        for name, (_, labels) in COUNTERS.items():
            if labels == ("topic",):
                for topic in topics:
                    self.begin(name, topic)
        return generate_latest(self._registry)

    def _add(self, name: str, amount: float, *labels: str) -> None:
        counter = self._counters[name]
        (counter.labels(*labels) if labels else counter).inc(amount)


class _Gauges(Collector):
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reads: dict[str, tuple[str, tuple[str, ...], Callable[[], Iterable[Sample]]]] = {}

    def add(self, name: str, what: tuple[str, tuple[str, ...]], read: Callable[[], Iterable[Sample]]) -> None:
        with self._lock:
            self._reads[name] = (*what, read)

    def describe(self) -> Iterable[Metric]:
        return []  # else registering would already call every `read`

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            reads = dict(self._reads)
        failed = 0
        for name, (doc, labels, read) in reads.items():
            family: CounterMetricFamily | GaugeMetricFamily
            if name.endswith("_total"):
                family = CounterMetricFamily(name.removesuffix("_total"), doc, labels=labels)
            else:
                family = GaugeMetricFamily(name, doc, labels=labels)
            try:
                for values, number in read():
                    family.add_metric(values, number)
            except Exception:  # a gauge reads live objects: one that fails must not take the other metrics with it
                failed += 1
            else:
                yield family
        yield GaugeMetricFamily("tierstate_unreadable_gauges", "Gauges that failed in this scrape.", value=failed)
