"""The number of remote records that readers get: none below the log start, none of a lost branch."""

from __future__ import annotations

from ...state.ids import RemoteSegmentId
from ...state.partition_view import PartitionView


def remote_records(view: PartitionView, log_start: int | None) -> dict[RemoteSegmentId, int]:
    """Return the number of records at or above the log start of each readable segment, or a little more.

    If readers get only a part of a segment, its markers and its offsets without a record may count as records.
    """
    offsets = dict.fromkeys((each.segment_id for each in view.readable), 0)
    for owned in view.coverage.owned:
        last = min(owned.offsets.end, owned.segment.last_record_offset)
        offsets[owned.segment.segment_id] += max(0, last - max(owned.offsets.start, log_start or 0) + 1)
    return {
        each.segment_id: min(each.record_count, offsets[each.segment_id]) for each in view.readable if each.described
    }


def record_count(view: PartitionView, log_start: int | None) -> int | None:
    """Return the sum of `remote_records`; None if Kafka itself copied segments (KIP-405), and did not count."""
    if not all(each.described for each in view.readable):
        return None
    return sum(remote_records(view, log_start).values())
