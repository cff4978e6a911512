"""Kafka's retention settings with KIP-405's meaning: total retention bounds the log, local retention the local tier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .offsets import Offset, TimestampMs

UNLIMITED = -1
SAME_AS_TOTAL = -2


@dataclass(frozen=True, slots=True)
class TopicRetention:
    """Milliseconds and bytes; -1 is unlimited. Local values are effective ones (-2 is already resolved)."""

    total_ms: int
    total_bytes: int
    local_ms: int
    local_bytes: int

    @classmethod
    def of(cls, total_ms: int, total_bytes: int, local_ms: int, local_bytes: int) -> TopicRetention:
        """From ``retention.ms/bytes`` and ``local.retention.ms/bytes`` as configured."""
        return cls(
            total_ms,
            total_bytes,
            total_ms if local_ms == SAME_AS_TOTAL else local_ms,
            total_bytes if local_bytes == SAME_AS_TOTAL else local_bytes,
        )


@dataclass(frozen=True, slots=True)
class LocalSegment:
    """A segment on the broker's disk: ``next_base`` is the base offset of the one after it."""

    base_offset: Offset
    next_base: Offset
    size_bytes: int
    max_timestamp: TimestampMs


def local_retention_end(segments: Sequence[LocalSegment], retention: TopicRetention, now: TimestampMs) -> Offset | None:
    """The offset below which local retention lets go; None when it keeps everything.

    ``segments``: rolled ones and the active one, ascending. Oldest first, whole segments, never the last (active) one;
    by time ``now - max_timestamp > local.retention.ms``, by size as long as what remains is still
    ``>= local.retention.bytes`` (Kafka's ``deleteRetentionMsBreachedSegments`` and its twin by size).
    """
    end: Offset | None = None
    excess = sum(segment.size_bytes for segment in segments) - retention.local_bytes
    for segment in segments[:-1]:
        by_time = retention.local_ms >= 0 and now - segment.max_timestamp > retention.local_ms
        by_size = retention.local_bytes >= 0 and excess - segment.size_bytes >= 0
        if not (by_time or by_size):
            break
        excess -= segment.size_bytes
        end = segment.next_base
    return end
