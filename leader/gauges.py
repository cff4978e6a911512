"""What the agent measures about the partitions its broker leads: from the status board and from the view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from ..runtime.metrics import Metrics, Sample
from ..state.lineage import readable_ranges
from ..state.partition_view import PartitionView
from ..state.segment import RemoteSegment, SegmentState
from ..state.view import TierView
from .status import PartitionStatus, StatusBoard


def feed_gauges(metrics: Metrics, board: StatusBoard, view: TierView) -> None:
    """Every gauge that the board or the view can answer, for partitions led here; asked anew at every scrape."""

    def by_status(value: Callable[[PartitionStatus], float | None]) -> Callable[[], Iterator[Sample]]:
        def read() -> Iterator[Sample]:
            for status in board.all():
                number = value(status) if status.leads else None
                if number is not None:
                    yield (status.topic, str(status.partition)), number

        return read

    def by_view(value: Callable[[PartitionView], float]) -> Callable[[], Iterator[Sample]]:
        def read() -> Iterator[Sample]:
            for partition, status in board.by_partition().items():
                if status.leads:
                    yield (status.topic, str(status.partition)), value(view.partition(partition))

        return read

    def total(value: Callable[[PartitionView], int]) -> Callable[[], Iterator[Sample]]:
        return lambda: iter([((), float(sum(number for _, number in by_view(value)())))])

    def refused() -> Iterator[Sample]:
        for reason, count in Counter(status.refused for status in board.all() if status.refused).items():
            yield (reason,), count

    metrics.gauge("remote_copy_lag_bytes", by_status(lambda status: status.copy_lag_bytes))
    metrics.gauge("remote_copy_lag_segments", by_status(lambda status: status.copy_lag_segments))
    metrics.gauge("uncopied_expires_in_seconds", by_status(lambda status: status.uncopied_expires_in_s))
    metrics.gauge("refused_partitions", refused)
    metrics.gauge("remote_log_size_bytes", by_view(lambda found: sum(s.log_bytes for s in found.readable)))
    metrics.gauge("remote_log_segments", by_view(lambda found: len(found.readable)))
    metrics.gauge("remote_delete_lag_segments", by_view(lambda found: len(_leaving(found))))
    metrics.gauge("remote_delete_lag_bytes", by_view(_leaving_bytes))
    metrics.gauge("abandoned_segments", by_view(lambda found: len(found.in_state(SegmentState.ABANDONED))))
    metrics.gauge("out_of_lineage_segments", by_view(_out_of_lineage))
    metrics.gauge("integrity_holds", total(lambda found: len(found.holds)))
    metrics.gauge("fenced_facts_total", total(lambda found: len(found.fenced)))


def _leaving(view: PartitionView) -> list[RemoteSegment | None]:
    return [segment.remote for segment in view.in_state(SegmentState.DELETE_SEGMENT_STARTED)]


def _leaving_bytes(view: PartitionView) -> int:
    return sum(segment.log_bytes for segment in _leaving(view) if segment is not None)


def _out_of_lineage(view: PartitionView) -> int:
    return sum(not readable_ranges(segment, view.lineage) for segment in view.readable)
