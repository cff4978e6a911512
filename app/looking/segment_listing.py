"""The segments of a partition, oldest first, as the gateway returns them and the command line prints them."""

from __future__ import annotations

from typing import Any

from ...schemas.codec import descriptor_to_json
from ...state.partition_view import PartitionView
from ...state.segment import CopyAttempt, RemoteSegment
from .remote_records import remote_records

UNKNOWN_OF_KAFKAS = (
    "last_record_offset",
    "record_count",
    "indexes_object_bytes",
    "manifest_bytes",
    "log_sha256",
    "log_crc32c",
    "indexes_sha256",
    "compression",
    "encryption_key_id",
    "aborted",
    "term",
)
"""The fields that are unknown of a segment that Kafka itself copied (KIP-405)."""


def segments_as_json(view: PartitionView) -> list[dict[str, Any]]:
    """Return segments of every state with known attributes; readable ones also with the records that readers get."""
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
