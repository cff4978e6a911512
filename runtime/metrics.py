"""Counters and gauges of a process, for Prometheus. Counters listen to events; tallies and gauges are read at a scrape.

`COUNTERS`, `TALLIES`, `SECONDS` and `GAUGES` are the whole list. If you add one, write in docs/operations.md, "What to
watch", what a person does when it changes. Numbers that need no action are in the log. Names follow KIP-405's stems.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .listener import (
    ChoreFailed,
    ChunkCacheOff,
    ConditionalPutIgnored,
    CopyFailed,
    CustodyStepTaken,
    Event,
    GatewayAnswered,
    KeyRingRefused,
    LoginRefused,
    OperationFailed,
    RemoteFetched,
    SecondValueSeen,
    SegmentCopied,
    SegmentDeleteBegan,
    StoreThrottled,
    TermStarted,
    TransactionIndexRebuilt,
    ViewRebuilt,
)


def _documented(texts: Mapping[str, str]) -> Mapping[str, tuple[str, tuple[str, ...]]]:
    """Return text and labels of each metric, by name. ``texts`` has names with labels: ``name{label,label}``."""
    parts = ((*name.rstrip("}").partition("{"), text) for name, text in texts.items())
    return {name: (text, tuple(filter(None, labels.split(",")))) for name, _, labels, text in parts}


COUNTERS = _documented(
    {
        "tierstate_store_throttled_seconds_total": "Seconds waited because the object store asked to slow down.",
        "tierstate_store_conditional_puts_ignored_total": "Starts at which the store was seen to ignore If-None-Match.",
        "tierstate_remote_copy_bytes_total{topic}": "Log bytes copied to the remote tier.",
        "tierstate_remote_copy_errors_total{topic}": "Copy attempts that ended without a segment.",
        "tierstate_transaction_indexes_rebuilt_total{topic}": "Copies whose transaction index was made from the "
        "markers: the broker's contradicts them.",
        "tierstate_remote_delete_requests_total{topic}": "Remote segments condemned.",
        "tierstate_act_failures_total{topic}": "Operations on the remote tier that ended early.",
        "tierstate_chore_failures_total{chore}": "Archiving, checkpoints or custody that failed.",
        "tierstate_custodian_steps_total{topic}": "Operations on partitions whose topic was deleted.",
        "tierstate_terms_started_total{topic}": "Terms begun.",
        "tierstate_view_rebuilds_total": "Views thrown away and replayed.",
        "tierstate_second_values_total": "Keys of the tier-state topic under which a second value landed.",
        "tierstate_key_ring_refusals_total": "Times the key ring's file changed and could not be used: the ring before "
        "goes on.",
        "tierstate_logins_refused_total{service,server,user}": "Logins that a broker or the object store refused.",
        "tierstate_remote_fetch_bytes_total": "Bytes read from the object store for readers.",
        "tierstate_gateway_answers_total{status}": "Calls that a gateway answered, by HTTP status.",
        "tierstate_gateway_sent_bytes_total{user,topic,tier}": "Bytes of bodies that a gateway sent, by who read which "
        "topic; of the first thousand of those.",
        "tierstate_chunk_cache_off_total": "Times the disk cache was not used, or turned itself off.",
    }
)
COUNTED: Mapping[type[Event], tuple[str, str]] = {
    SegmentCopied: ("tierstate_remote_copy_bytes_total", "log_bytes"),
    CopyFailed: ("tierstate_remote_copy_errors_total", ""),
    TransactionIndexRebuilt: ("tierstate_transaction_indexes_rebuilt_total", ""),
    SegmentDeleteBegan: ("tierstate_remote_delete_requests_total", ""),
    OperationFailed: ("tierstate_act_failures_total", ""),
    ChoreFailed: ("tierstate_chore_failures_total", ""),
    CustodyStepTaken: ("tierstate_custodian_steps_total", ""),
    TermStarted: ("tierstate_terms_started_total", ""),
    ViewRebuilt: ("tierstate_view_rebuilds_total", ""),
    SecondValueSeen: ("tierstate_second_values_total", ""),
    StoreThrottled: ("tierstate_store_throttled_seconds_total", "seconds"),
    ConditionalPutIgnored: ("tierstate_store_conditional_puts_ignored_total", ""),
    KeyRingRefused: ("tierstate_key_ring_refusals_total", ""),
    LoginRefused: ("tierstate_logins_refused_total", ""),
    RemoteFetched: ("tierstate_remote_fetch_bytes_total", "bytes"),
    ChunkCacheOff: ("tierstate_chunk_cache_off_total", ""),
}
"""The counter of an event, and the field that is added to it; empty: 1 is added. The counter's labels are fields, too.

The number of all other events needs no action: they are lines in the log.
"""
READERS = 1_000
"""Most (user, topic, tier) labels of a gateway's sent bytes. Bytes of further ones are counted under empty labels."""
TALLIES = _documented(
    {
        "tierstate_table_commits_total{table}": "Commits to a table that follows a topic.",
        "tierstate_table_rows_total{table}": "Rows that came with them.",
        "tierstate_table_files_total{table}": "Files that came with them.",
        "tierstate_table_failures_total{table}": "Looks at a table that ended with an error.",
        "tierstate_table_corrupt_records_total{table}": "Rows that came, of which the key or the value does not parse.",
        "tierstate_table_missed_records_total{table}": "Offsets that were deleted or lost before the table had their "
        "rows.",
        "tierstate_copy_quota_waited_seconds_total": "Seconds that copies waited for copy.quota.",
        "tierstate_chunk_cache_hits_total{level}": "Chunks found, in memory also those being loaded.",
        "tierstate_chunk_cache_misses_total{level}": "Chunks not found.",
        "tierstate_chunk_cache_damaged_total": "Files of the disk cache that were damaged, and dropped.",
        "tierstate_gateway_dropped_connections_total": "Connections that a gateway refused, or reset: too many, or "
        "standing still.",
        "tierstate_proxy_passed_bytes_total": "Bytes of records that passed from brokers to clients.",
        "tierstate_proxy_filled_bytes_total": "Bytes of records of the remote tier put into brokers' answers.",
        "tierstate_proxy_passed_partitions_total": "Partitions of answers whose records passed to clients.",
        "tierstate_proxy_filled_partitions_total": "Partitions of answers that got records of the remote tier.",
        "tierstate_proxy_not_yet_total": "Times that remote records were not at hand: the client asked again.",
        "tierstate_proxy_errors_total{code}": "Errors told to clients of what the broker has no more.",
        "tierstate_proxy_turned_away_total": "Connections refused, or closed for what came on them.",
    }
)
"""Counters whose numbers are kept elsewhere and read at every scrape."""
SECONDS: Mapping[str, str] = {
    "tierstate_remote_copy_seconds": "From copy-started to copy-finished, a segment.",
    "tierstate_remote_fetch_seconds": "One read of the object store.",
    "tierstate_gateway_answer_seconds": "One call of a gateway, to the last byte that was sent.",
}
TIMED = {
    SegmentCopied: "tierstate_remote_copy_seconds",
    RemoteFetched: "tierstate_remote_fetch_seconds",
    GatewayAnswered: "tierstate_gateway_answer_seconds",
}
GAUGES = _documented(
    {
        "tierstate_build_info{version}": "1, by the version of tierstate that runs.",
        "tierstate_table_lag_records{table}": "Offsets that are in the remote tier and not in the table.",
        "tierstate_table_lag_seconds{table}": "Since the oldest record that the table lacks was copied.",
        "tierstate_table_version{table,format}": "Of the table's columns: how often it evolved.",
        "tierstate_table_stopped{table}": "1: the table cannot go on now; /readyz says why.",
        "tierstate_remote_copy_lag_bytes{topic,partition}": "Bytes of rolled segments that are not copied.",
        "tierstate_remote_copy_lag_segments{topic,partition}": "Rolled segments that are not copied.",
        "tierstate_remote_copy_lag_seconds{topic,partition}": "Since the newest record of the oldest of them.",
        "tierstate_remote_delete_lag_segments{topic,partition}": "Segments whose deletion has begun and not ended.",
        "tierstate_remote_log_size_bytes{topic,partition}": "Log bytes in the remote tier.",
        "tierstate_uncopied_expires_in_seconds{topic,partition}": "Until the broker expires something that is not "
        "copied.",
        "tierstate_lso_pinned_seconds{topic,partition}": "How long an open transaction has held the last stable "
        "offset.",
        "tierstate_out_of_lineage_segments{topic,partition}": "Segments on a branch of the log that lost an election.",
        "tierstate_abandoned_segments{topic,partition}": "Copies whose term ended before they did.",
        "tierstate_refused_partitions{reason}": "Partitions that are not tiered, by reason.",
        "tierstate_partitions_not_copied{reason}": "Partitions led here of which no segment is copied now, by reason.",
        "tierstate_partitions_not_trimmed{reason}": "Partitions led here of which no local space is freed now, by "
        "reason.",
        "tierstate_integrity_holds": "Holds that a person must release.",
        "tierstate_fenced_facts": "Facts of terms that were over when they arrived, until they are erased.",
        "tierstate_consecutive_failures{topic,partition}": "Failures in a row about a partition; 0: all is well.",
        "tierstate_never_copied{topic,partition}": "1: tiering.include chooses the partition, nothing of it was ever "
        "copied, and the agent fails with it.",
        "tierstate_rights_lacking{operation,on}": "1: a right that the agent needs and Kafka does not give it.",
        "tierstate_local_excess_bytes{topic,partition}": "Bytes of rolled segments that local retention lets go and "
        "the broker still has.",
        "tierstate_gap_offsets{topic,partition}": "Offsets from the log start to the local start that neither tier "
        "has.",
        "tierstate_cut_elsewhere_offsets{topic,partition}": "Offsets that neither a trim nor an order of ours took "
        "from the broker.",
        "tierstate_future_segments{topic,partition}": "Remote segments with a timestamp of the future: their age "
        "counts from their copy.",
        "tierstate_degraded_partitions": "Partitions with facts that this version cannot read, or foreign ones beside "
        "them.",
        "tierstate_contradicted_partitions": "Partitions whose accepted facts contradict each other.",
        "tierstate_lineage_unknown_partitions": "Partitions with remote segments that the lineage in force cannot "
        "place.",
        "tierstate_discovery_failing": "1 while the agent cannot learn what its broker hosts; it decides nothing then.",
        "tierstate_partitions_not_seen": "Partitions led here that are in no log folder of the agent: nobody copies "
        "them.",
        "tierstate_log_folders_lost": "Log folders of the broker that the agent goes on without.",
        "tierstate_hung_threads{loop}": "Threads of a loop that have been silent for longer than anything may take "
        "there.",
        "tierstate_backup_problems": "Parts of the cluster that are not in its newest backup, at the agent that makes "
        "it.",
        "tierstate_drill_last_success_timestamp_seconds": "When the last drill that succeeded began; 0: none did. Of "
        "the agent that makes backups.",
        "tierstate_drill_failed": "1: the newest drill failed.",
        "tierstate_object_store_away{store}": "1 while the object store did not answer when it was last asked.",
        "tierstate_clock_difference_seconds{clock}": "By how much this machine's clock and another one differ: a "
        "broker's, or the object store's.",
        "tierstate_view_age_seconds{tier_partition}": "Since the view was last known to be at the end of the topic, "
        "or of the bucket's archive.",
        "tierstate_newest_fact_age_seconds{tier_partition}": "Age of the newest fact that the bucket's archive has, in "
        "a proxy of the bucket alone.",
        "tierstate_history_broken": "1: the tier-state topic has parted from its archive (an older backup was put "
        "back), and nothing is deleted.",
        "tierstate_prefix_contested": "1: another cluster, a copy of this one above all, writes below the same bucket "
        "prefix; nothing is changed.",
        "tierstate_prefix_unproven": "1 while the agent has no proof that no other cluster writes below its prefix: it "
        "deletes and trims nothing.",
        "tierstate_prefix_on_trial": "1 while the agent deletes nothing because it took over after a silence or at "
        "another place.",
        "tierstate_topic_problems": "Differences of the tier-state topic's configuration from what is safe.",
        "tierstate_heads_lost": "Partitions of the tier-state topic that do not begin at 0: facts are missing.",
        "tierstate_gateway_connections": "Connections open to a gateway.",
        "tierstate_gateway_memory_bytes": "Of gateway.memory, in use.",
        "tierstate_proxy_connections": "Clients connected to the proxy.",
        "tierstate_proxy_memory_bytes": "Of proxy.memory, in use.",
        "tierstate_orphan_objects": "Objects that no fact names.",
        "tierstate_facts_lost{topic,partition}": "1: the bucket has whole segments of the partition whose facts are "
        "lost, and nothing of it is deleted.",
        "tierstate_missing_objects{topic,partition}": "Objects of readable segments that are not in the store as they "
        "must be.",
    }
)

UNREADABLE = "tierstate_unreadable_gauges"

Sample = tuple[Sequence[str], float]
"""Label values in the order of `GAUGES`, and the value."""
_Family = CounterMetricFamily | GaugeMetricFamily


class Metrics:
    """The metrics of one process object: counters of events, and gauges and tallies read at a scrape. Thread-safe."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._counters = {
            name: Counter(name.removesuffix("_total"), doc, labels, registry=self._registry)
            for name, (doc, labels) in COUNTERS.items()
        }
        self._labelled: dict[tuple[str, ...], Counter] = {}
        self._readers = set[tuple[str, str, str]]()
        self._seconds = {name: Histogram(name, doc, registry=self._registry) for name, doc in SECONDS.items()}
        self._read = _Read()
        self._topics: list[Callable[[], Iterable[str]]] = []
        self._registry.register(self._read)
        self.gauge("tierstate_build_info", lambda: [((version("tierstate"),), 1)])
        ProcessCollector(registry=self._registry)

    def listen(self, event: Event) -> None:
        """Count the event: this method is a `Listener`."""
        if isinstance(event, GatewayAnswered):
            self._add("tierstate_gateway_answers_total", 1, str(event.status))
            self._add("tierstate_gateway_sent_bytes_total", event.bytes, *self._reader(event))
        elif counted := COUNTED.get(type(event)):
            name, amount = counted
            labels = [getattr(event, label) for label in COUNTERS[name][1]]
            self._add(name, getattr(event, amount) if amount else 1, *labels)
        if isinstance(event, SegmentCopied | RemoteFetched | GatewayAnswered):
            self._seconds[TIMED[type(event)]].observe(event.seconds)

    def gauge(self, name: str, read: Callable[[], Iterable[Sample]]) -> None:
        """Call ``read`` at every scrape, on the scraping thread. Raises KeyError for a name that is not in `GAUGES`.

        If ``read`` fails, that scrape omits the gauge: an alert can detect an absent metric, but not a wrong value.
        """
        doc, labels = GAUGES[name]
        self._read.add(name, lambda: GaugeMetricFamily(name, doc, labels=labels), read)

    def tally(self, name: str, read: Callable[[], Iterable[Sample]]) -> None:
        """Like `gauge`, for a counter: its value only grows while the process lives. ``name`` must be in `TALLIES`."""
        doc, labels = TALLIES[name]
        self._read.add(name, lambda: CounterMetricFamily(name.removesuffix("_total"), doc, labels=labels), read)

    def begin(self, name: str, *labels: str) -> None:
        """Begin a counter at 0 for these labels. An alert does not see an increase if the first sample is 1."""
        self._counters[name].labels(*labels)

    def begin_topics(self, read: Callable[[], Iterable[str]]) -> None:
        """Begin the counters by topic at 0, at every scrape, for the topics that ``read`` returns."""
        self._topics.append(read)

    def exposition(self) -> bytes:
        topics = {topic for read in self._topics for topic in read()}
        for name, (_, labels) in COUNTERS.items():
            if labels == ("topic",):
                for topic in topics:
                    self.begin(name, topic)
        return generate_latest(self._registry)

    def _reader(self, event: GatewayAnswered) -> tuple[str, str, str]:
        """Return user, topic and tier as labels. They are empty for a new combination beyond `READERS`."""
        labels = event.user, event.topic_read, event.tier
        if labels not in self._readers:
            if len(self._readers) >= READERS:
                return "", "", ""
            self._readers.add(labels)
        return labels

    def _add(self, name: str, amount: float, *labels: str) -> None:
        counter = self._labelled.get((name, *labels))
        if counter is None:
            counter = self._counters[name].labels(*labels) if labels else self._counters[name]
            self._labelled[(name, *labels)] = counter
        counter.inc(amount)


class _Read(Collector):
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reads: dict[str, tuple[Callable[[], _Family], Callable[[], Iterable[Sample]]]] = {}

    def add(self, name: str, begin: Callable[[], _Family], read: Callable[[], Iterable[Sample]]) -> None:
        with self._lock:
            self._reads[name] = (begin, read)

    def describe(self) -> Iterable[Metric]:
        return []  # else registering would already call every `read`

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            reads = list(self._reads.values())
        failed = 0
        for begin, read in reads:
            family = begin()
            try:
                for values, number in read():
                    family.add_metric(values, number)
            except Exception:  # a gauge reads live objects: its failure must not remove the other metrics
                failed += 1
            else:
                yield family
        yield GaugeMetricFamily(UNREADABLE, "Gauges that failed in this scrape.", value=failed)
