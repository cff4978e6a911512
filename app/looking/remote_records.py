"""Remote segments with the number of records that readers get: none below the log start, none of a lost branch."""

from __future__ import annotations

from typing import Any

from ...schemas.codec import descriptor_to_json
from ...state.ids import RemoteSegmentId
from ...state.partition_view import PartitionView
from ...state.segment import CopyAttempt, RemoteSegment

UNKNOWN_OF_KAFKAS = (
    "last_record_offset record_count indexes_object_bytes manifest_bytes log_sha256 log_crc32c indexes_sha256 "
    "compression encryption_key_id aborted term"
).split()
"""The fields that are unknown of a segment that Kafka itself copied (KIP-405)."""


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


def segments_as_json(view: PartitionView) -> list[dict[str, Any]]:
    """Return segments of every state, oldest first, with known attributes; readable ones with the records readers get.

    The gateway returns them, and the command line prints them.
    """
    records = remote_records(view, view.log_start)
    ordered = sorted(view.segments.values(), key=lambda s: (s.subject.offsets.start if s.subject else -1, s.segment_id))
    return [
        {
            **(_described(each.subject) if each.subject else {}),
            "segment_id": each.segment_id,
            "state": each.state.value,
            **({"remote_records": records[each.segment_id]} if each.segment_id in records else {}),
        }
        for each in ordered
    ]


def _described(subject: CopyAttempt | RemoteSegment) -> dict[str, Any]:
    record = descriptor_to_json(subject)
    if isinstance(subject, RemoteSegment) and not subject.described:
        record |= dict.fromkeys(UNKNOWN_OF_KAFKAS)
    return record
