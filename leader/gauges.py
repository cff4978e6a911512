"""Gauges about the partitions that the agent's broker leads, read from the status board and the view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from ..rules.expire import future_segments
from ..rules.reasons import Reason
from ..rules.trim import offsets_cut_elsewhere
from ..runtime.clock import Clock
from ..runtime.metrics import Metrics, Sample
from ..state.lineage import readable_ranges
from ..state.offsets import Offset
from ..state.partition_view import PartitionView
from ..state.segment import SegmentState
from ..state.view import TierView
from .brokers_time import BrokersTime
from .status import PartitionStatus, StatusBoard


def feed_clock_gauge(metrics: Metrics, time: BrokersTime) -> None:
    """Register a gauge of the seconds between the machine's clock and every other clock that is known."""

    def read() -> Iterator[Sample]:
        clocks = time.clocks()
        for other in clocks.others:
            yield (other.clock,), abs(clocks.machine.now - other.now) / 1000

    metrics.gauge("tierstate_clock_difference_seconds", read)


def feed_gauges(metrics: Metrics, board: StatusBoard, view: TierView, clock: Clock) -> None:
    """Register the gauges of led partitions. Each scrape reads their values from the board or the view again."""

    def by_status(value: Callable[[PartitionStatus], float | None]) -> Callable[[], Iterator[Sample]]:
        def read() -> Iterator[Sample]:
            for status in board.all():
                number = value(status) if status.leads else None
                if number is not None:
                    yield (status.topic, str(status.partition)), number

        return read

    def by_partition(value: Callable[[PartitionStatus, PartitionView], float | None]) -> Callable[[], Iterator[Sample]]:
        def read() -> Iterator[Sample]:
            for partition, status in board.by_partition().items():
                number = value(status, view.partition(partition)) if status.leads else None
                if number is not None:
                    yield (status.topic, str(status.partition)), number

        return read

    def by_view(value: Callable[[PartitionView], float]) -> Callable[[], Iterator[Sample]]:
        return by_partition(lambda _, facts: value(facts))

    def in_state(state: SegmentState) -> Callable[[], Iterator[Sample]]:
        return by_view(lambda facts: len(facts.in_state(state)))

    def total(value: Callable[[PartitionView], int]) -> Callable[[], Iterator[Sample]]:
        return lambda: iter([((), float(sum(number for _, number in by_view(value)())))])

    def orphans() -> Iterator[Sample]:
        yield (), float(sum(status.orphan_objects or 0 for status in board.all() if status.leads))

    def by_kind(kind: Callable[[PartitionStatus], Reason | None]) -> Callable[[], Iterator[Sample]]:
        def read() -> Iterator[Sample]:
            counts = Counter(cause for status in board.all() if status.leads and (cause := kind(status)) is not None)
            for reason, count in sorted(counts.items()):
                yield (reason.value,), count

        return read

    metrics.begin_topics(lambda: {status.topic for status in board.all()})
    metrics.gauge("tierstate_remote_copy_lag_bytes", by_status(lambda status: status.copy_lag_bytes))
    metrics.gauge(
        "tierstate_remote_copy_lag_seconds",
        by_status(
            lambda status: None if status.copy_lag_segments is None else status.copy_lag_s(clock.now_ms()) or 0.0
        ),
    )
    metrics.gauge("tierstate_remote_copy_lag_segments", by_status(lambda status: status.copy_lag_segments))
    metrics.gauge(
        "tierstate_uncopied_expires_in_seconds", by_status(lambda status: status.uncopied_expires_in_s(clock.now_ms()))
    )
    metrics.gauge("tierstate_never_copied", by_partition(_never_copied))
    metrics.gauge("tierstate_consecutive_failures", by_status(lambda status: status.consecutive_failures))
    metrics.gauge("tierstate_local_excess_bytes", by_status(lambda status: status.local_excess_bytes))
    metrics.gauge("tierstate_refused_partitions", by_kind(lambda status: status.refused_reason))
    metrics.gauge("tierstate_partitions_not_copied", by_kind(lambda status: status.not_copied_reason))
    metrics.gauge("tierstate_partitions_not_trimmed", by_kind(lambda status: status.not_trimmed_reason))
    metrics.gauge("tierstate_lso_pinned_seconds", by_status(lambda status: status.lso_pinned_s))
    metrics.gauge("tierstate_orphan_objects", orphans)
    metrics.gauge("tierstate_facts_lost", by_status(lambda status: int(status.facts_lost is not None)))
    metrics.gauge("tierstate_missing_objects", by_status(lambda status: status.missing_objects))
    metrics.gauge("tierstate_remote_log_size_bytes", by_view(lambda facts: sum(s.log_bytes for s in facts.readable)))
    metrics.gauge("tierstate_remote_delete_lag_segments", in_state(SegmentState.DELETE_SEGMENT_STARTED))
    metrics.gauge("tierstate_abandoned_segments", in_state(SegmentState.ABANDONED))
    metrics.gauge("tierstate_out_of_lineage_segments", by_view(_out_of_lineage))
    metrics.gauge("tierstate_future_segments", by_view(lambda facts: future_segments(facts, clock.now_ms())))
    metrics.gauge("tierstate_gap_offsets", by_partition(_missing))
    metrics.gauge("tierstate_cut_elsewhere_offsets", by_partition(_cut_elsewhere))
    metrics.gauge("tierstate_degraded_partitions", total(lambda facts: bool(facts.degraded)))
    metrics.gauge("tierstate_contradicted_partitions", total(lambda facts: bool(facts.contradictions)))
    metrics.gauge("tierstate_lineage_unknown_partitions", total(lambda facts: facts.lineage_unknown))
    metrics.gauge("tierstate_integrity_holds", total(lambda facts: len(facts.holds)))
    metrics.gauge("tierstate_fenced_facts", total(lambda facts: len(facts.fenced)))


def _cut_elsewhere(status: PartitionStatus, view: PartitionView) -> int | None:
    start = status.local_log_start_offset
    if start is None or status.not_trimmed_reason is Reason.TRIM_DISABLED:  # an archive: Kafka's retention cuts it
        return None
    return offsets_cut_elsewhere(view, Offset(start))


def _never_copied(status: PartitionStatus, view: PartitionView) -> bool:
    """Return whether the partition is tiered and has no segment in the facts, while looks or operations fail."""
    return status.consecutive_failures > 0 and status.refused is None and not view.segments


def _out_of_lineage(view: PartitionView) -> int:
    return sum(not readable_ranges(segment, view.lineage) for segment in view.readable)


def _missing(status: PartitionStatus, view: PartitionView) -> int | None:
    start = status.local_log_start_offset
    return None if start is None else sum(len(gap) for gap in view.gaps_between(view.log_start, Offset(start)))
