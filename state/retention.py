"""Topic settings, and retention as in KIP-405: total retention limits the log, local retention the local tier."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import islice

from .coverage import Coverage, OwnedRange
from .local_segments import LocalSegment, LocalSegments
from .offsets import Offset, OffsetRange, TimestampMs
from .segment import RemoteSegment

UNLIMITED = -1
SAME_AS_TOTAL = -2
"""``local.retention.*`` = -2 means the value of the topic's own ``retention.*``."""
_PREFIXES = {"timestamp_type": "message."}
_OURS = ("remote_ms", "remote_bytes")


@dataclass(frozen=True, slots=True)
class TopicRetention:
    """The effective retention of a topic, in milliseconds and bytes. -1 is unlimited; local -2 is already resolved."""

    total_ms: int
    total_bytes: int
    local_ms: int
    local_bytes: int


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The effective settings: the topic's own, else the broker's default. In milliseconds and bytes; -1 is no limit."""

    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    local_retention_ms: int = SAME_AS_TOTAL
    local_retention_bytes: int = SAME_AS_TOTAL
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    remote_storage_enable: bool = False
    timestamp_type: str = "CreateTime"
    unclean_leader_election_enable: bool = False
    delete_retention_ms: int = 86_400_000
    remote_ms: int | None = None
    """The remote tier's own retention, of tierstate's settings. None: that of the topic. ``remote_bytes``: the same."""
    remote_bytes: int | None = None

    @property
    def retention(self) -> TopicRetention:
        """Return the effective retention. The remote tier's own retention, if there is one, is the total."""
        local_ms, local_bytes = self.local_retention_ms, self.local_retention_bytes
        total_ms, total_bytes = self.retention_ms, self.retention_bytes
        local_ms = total_ms if local_ms == SAME_AS_TOTAL else local_ms
        local_bytes = total_bytes if local_bytes == SAME_AS_TOTAL else local_bytes
        if self.remote_ms is not None and self.remote_bytes is not None:
            total_ms, total_bytes = self.remote_ms, self.remote_bytes
        return TopicRetention(total_ms, total_bytes, local_ms, local_bytes)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return Kafka's names of all settings that are Kafka's."""
        kafkas = (each.name for each in fields(cls) if each.name not in _OURS)
        return tuple(f"{_PREFIXES.get(name, '')}{name.replace('_', '.')}" for name in kafkas)

    @classmethod
    def of(cls, entries: Mapping[str, str]) -> TopicConfig:
        """Parse settings by Kafka's names. A broker omits a setting that it does not know: then the default applies."""
        default = cls()

        def number(name: str, otherwise: int) -> int:
            return int(entries.get(name, otherwise))

        policy = entries.get("cleanup.policy", "delete")
        return cls(
            retention_ms=number("retention.ms", default.retention_ms),
            retention_bytes=number("retention.bytes", default.retention_bytes),
            local_retention_ms=number("local.retention.ms", SAME_AS_TOTAL),
            local_retention_bytes=number("local.retention.bytes", SAME_AS_TOTAL),
            cleanup_policy=frozenset(filter(None, (one.strip() for one in policy.split(",")))),
            remote_storage_enable=entries.get("remote.storage.enable", "false") == "true",
            timestamp_type=entries.get("message.timestamp.type", default.timestamp_type),
            delete_retention_ms=number("delete.retention.ms", default.delete_retention_ms),
            unclean_leader_election_enable=entries.get("unclean.leader.election.enable", "false") == "true",
        )


def local_retention_end(segments: Sequence[LocalSegment], retention: TopicRetention, now: TimestampMs) -> Offset | None:
    """Return the offset (exclusive) below which local retention deletes segments; None if it keeps everything.

    ``segments``: the rolled ones and the active one, ascending. Complete segments expire, oldest first, never the
    active one: by time if ``now - max_timestamp > local.retention.ms``, by size while at least
    ``local.retention.bytes`` remain (Kafka's ``deleteRetentionMsBreachedSegments`` and its counterpart by size).
    """
    local, expired = LocalSegments.of(segments), 0
    if retention.local_bytes >= 0:
        expired = local.released(retention.local_bytes)
    if retention.local_ms >= 0:
        expired = max(expired, local.all_older(now - retention.local_ms))
        while expired < len(local.rolled) and now - local[expired].max_timestamp > retention.local_ms:
            expired += 1  # it follows a segment that expired by size alone
    return local[expired - 1].next_base if expired else None


@dataclass(frozen=True)
class WholeLog:
    """Both tiers of a partition as one log from ``log_start`` on. Total retention applies to it.

    ``local``: the broker's segments, ascending, from ``local_start`` on. Offsets from ``high_watermark`` on never
    expire. An offset in both tiers counts once (KAFKA-20732 counted the complete local log in addition).
    """

    coverage: Coverage
    local: Sequence[LocalSegment]
    log_start: Offset
    local_start: Offset
    high_watermark: Offset

    def remote(self) -> Iterator[OwnedRange]:
        """Iterate over the ranges that remote segments own from the log start on, ascending; the first is clipped."""
        owned = self.coverage.owned
        first = bisect_left(owned, self.log_start, key=lambda piece: piece.offsets.end)
        for piece in islice(owned, first, None):
            if piece.offsets.start < self.log_start:
                piece = OwnedRange(OffsetRange(self.log_start, piece.offsets.end), piece.segment)
            yield piece

    @cached_property
    def size_bytes(self) -> int:
        """Return the bytes of the union of both tiers' offsets. O(segments)."""
        remote = sum(share(piece.segment.log_bytes, piece.offsets, piece.segment.offsets) for piece in self.remote())
        return remote + sum(self._only_local())

    def _only_local(self) -> Iterator[int]:
        start = max(self.log_start, self.local_start)
        segments = [
            (OffsetRange(each.base_offset, Offset(end - 1)), each.size_bytes)
            for each in self.local
            if (end := self._end_of(each)) > max(start, each.base_offset)
        ]
        if not segments:
            return
        whole = OffsetRange(Offset(max(start, segments[0][0].start)), segments[-1][0].end)
        gaps = iter(self.coverage.gaps(whole))
        gap = next(gaps, None)
        for offsets, size_bytes in segments:
            while gap is not None and gap.start <= offsets.end:
                if (part := gap.overlap(offsets)) is not None:
                    yield share(size_bytes, part, offsets)
                if gap.end > offsets.end:
                    break  # the rest of it lies in the next segment
                gap = next(gaps, None)

    def _end_of(self, segment: LocalSegment) -> Offset:
        """Return the end (exclusive). The active segment ends at the high watermark: records above may be truncated."""
        return segment.next_base if segment.next_base > segment.base_offset else self.high_watermark


def share(size_bytes: int, part: OffsetRange, whole: OffsetRange) -> int:
    """Return the bytes of a part of a segment, in proportion to its offsets. Rounded down, so that too much is kept."""
    return size_bytes * len(part) // len(whole)


def counted_from(segment: RemoteSegment, now: TimestampMs) -> TimestampMs:
    """Return the time from which a segment's age counts: the timestamp of its newest record. It is the time of the copy
    if the timestamp is -1 or in the future: a future one could keep this segment and all later ones for very long.
    """
    return segment.max_timestamp if 0 <= segment.max_timestamp <= now else segment.copied_at


def time_retention_end(log: WholeLog, retention: TopicRetention, now: TimestampMs) -> Offset | None:
    """Return the log start that ``retention.ms`` requires (``now - t > retention.ms``); None if it keeps everything."""
    if retention.total_ms < 0:
        return None
    return _expired_end(log, lambda piece: now - counted_from(piece.segment, now) > retention.total_ms)


def size_retention_end(log: WholeLog, retention: TopicRetention) -> Offset | None:
    """Return the log start that ``retention.bytes`` requires; None if it keeps everything.

    The oldest segment expires only while the rest is still ``>= retention.bytes``.
    """
    if retention.total_bytes < 0:
        return None
    excess = log.size_bytes - retention.total_bytes

    def expired(piece: OwnedRange) -> bool:
        nonlocal excess
        excess -= share(piece.segment.log_bytes, piece.offsets, piece.segment.offsets)
        return excess >= 0

    return _expired_end(log, expired)


def _expired_end(log: WholeLog, expired: Callable[[OwnedRange], bool]) -> Offset | None:
    """Return the end of the expired prefix. It ends before the first range that is kept or that only the broker has.

    Offsets below the local start that no tier has do not end the prefix: their records are lost, and retention would
    stop forever at every gap. They expire together with the segment that follows them, never alone.
    """
    end: Offset | None = None
    following: int = log.log_start
    for piece in log.remote():
        if piece.offsets.start > max(following, log.local_start):
            break
        if piece.offsets.end >= log.high_watermark or not expired(piece):
            break
        following = piece.offsets.end + 1
        end = Offset(following)
    return end
