"""The first record at or after a time, over both tiers; correct for timestamps that go backwards.

The broker is asked first. Then its local start is read, and the remote tier is searched below this start: so offsets
that a trim removed in between are searched, too. The lower offset is returned. A broker that answers for both tiers
(KIP-405) is asked last, and only if the remote tier has no such record. A marker is returned only if ``markers`` is
set, by functions that stand in for a broker, which may return one. If a part of the remote tier may belong to a lost
branch, no record in this part or after it is returned.
"""

from __future__ import annotations

from ..log.batch import iter_batches
from ..log.indexes import lookup_offset, time_index_entries
from ..log.record_parser import parse_records
from ..state.errors import LogGap
from ..state.offsets import Offset, OffsetRange, TimestampMs
from ..state.partition_view import PartitionView, require_readable
from ..state.routing import Isolation, LocalBounds, log_start, unconfirmed
from ..state.segment import RemoteSegment
from .logical import Ask, LogicalPartition
from .piece import Fetched
from .remote import RemoteTier

PIECE_BYTES = 1024 * 1024

Found = tuple[Offset, TimestampMs]


def offset_for_time(log: LogicalPartition, timestamp: TimestampMs, *, markers: bool = False) -> Found | None:
    """Return the first record at or after the time, or None. Raises LogGap if offsets are missing before the answer,
    and LineageUnconfirmed if offsets before the answer may belong to another log."""
    by_brokers = log.remote.served_by_brokers
    local = None if by_brokers else log.local.offset_at(log.topic, log.partition, timestamp)
    bounds = log.local_bounds()
    record = first_remote(log, timestamp, bounds, markers=markers)
    if record is None and by_brokers:
        local = log.local.offset_at(log.topic, log.partition, timestamp)
    if record is not None or local is None:
        return record
    if markers:
        return local
    # The broker also finds markers, whose time is another clock's, and may answer below its own log start.
    return _scan_local(log, max(local[0], bounds.local_start), bounds.high_watermark, timestamp)


def first_remote(
    log: LogicalPartition, timestamp: TimestampMs, bounds: LocalBounds, *, markers: bool = False
) -> Found | None:
    """Return the first record below the local start of ``bounds``. Raises as `offset_for_time`."""
    view = log.known(log.fresh_view(max_age=0.0), bounds)
    start = log_start(view, bounds)
    if start >= bounds.local_start:
        return None
    sure = min(log.sure_end(view, bounds), bounds.local_start)
    record = _first_within(log, view, (start, sure), timestamp, markers) if start < sure else None
    if record is None and sure < bounds.local_start:
        raise unconfirmed(view, bounds, sure, offset=max(start, sure))
    return record


def latest_remote(log: LogicalPartition, above: TimestampMs) -> Found | None:
    """Return, as a broker would, the first record or marker with the latest time below the local start. Returns None if
    this time is before ``above``.

    Raises LineageUnconfirmed if the record may belong to another log.
    """
    bounds = log.local_bounds()
    view = log.known(log.fresh_view(max_age=0.0), bounds)
    start = log_start(view, bounds)
    if start >= bounds.local_start:
        return None
    sure = log.sure_end(view, bounds)
    if sure < bounds.local_start:
        raise unconfirmed(view, bounds, sure, offset=max(start, sure))
    below = OffsetRange(start, Offset(bounds.local_start - 1))
    parts = [(each.segment, part) for each in view.coverage.owned if (part := each.offsets.overlap(below)) is not None]
    for segment, part in sorted(parts, key=lambda each: (-each[0].max_timestamp, each[1].start)):
        if segment.max_timestamp < above:
            break
        record = first_in_segment(log.remote, segment, part, segment.max_timestamp, markers=True)
        if record is not None:  # else the timestamp belongs to a record in another part of the segment
            return record
    return None


def _first_within(
    log: LogicalPartition, view: PartitionView, within: tuple[Offset, Offset], timestamp: TimestampMs, markers: bool
) -> Found | None:
    """Return the first record within ``within``: start, and exclusive end."""
    offsets = OffsetRange(within[0], Offset(within[1] - 1))
    gaps = view.open_gaps(offsets)
    for owned in view.coverage.owned:
        part = owned.offsets.overlap(offsets)
        if part is None or owned.segment.max_timestamp < timestamp:
            continue
        record = first_in_segment(log.remote, owned.segment, part, timestamp, markers=markers)
        if record is not None:
            _refuse_gap(log, view, gaps, record[0])
            return record
    _refuse_gap(log, view, gaps, within[1])
    return None


def first_in_segment(
    remote: RemoteTier, segment: RemoteSegment, offsets: OffsetRange, timestamp: TimestampMs, *, markers: bool
) -> Found | None:
    """Return the first record of the range at or after a time. Records before the time index's entry are older."""
    index = list(time_index_entries(remote.time_index(segment), segment.offsets.start, segment.object_key))
    begin = lookup_offset(index, timestamp)
    position = offsets.start if begin is None else Offset(max(begin, offsets.start))
    while position <= offsets.end:
        rest = OffsetRange(position, offsets.end)
        piece = remote.read(segment, rest, PIECE_BYTES, Isolation.READ_UNCOMMITTED)
        end = Offset(offsets.end + 1)
        record = first_in_batches(piece.data, position, end, timestamp, segment.object_key, markers=markers)
        if record is not None:
            return record
        position = piece.next_offset
    return None


def first_in_batches(
    data: bytes | memoryview,
    start: Offset,
    stop: Offset,
    timestamp: TimestampMs,
    source: str,
    *,
    markers: bool = False,
) -> Found | None:
    """Return the first record of ``[start, stop)`` at or after a time. Batches that are older are not decoded.

    ``markers``: a marker counts, too. A control batch has one marker, and the marker's time.
    """
    for header in iter_batches(data, source=source):
        batch = data[header.position : header.position + header.size_bytes]
        if header.max_timestamp < timestamp:
            continue
        if header.is_control:
            if markers and start <= header.base_offset < stop:
                return Offset(header.base_offset), TimestampMs(header.max_timestamp)
            continue
        for record in parse_records(batch, source=source, start=start, end=stop):
            if record.timestamp >= timestamp:
                return Offset(record.offset), TimestampMs(record.timestamp)
    return None


def _scan_local(log: LogicalPartition, start: Offset, end: Offset, timestamp: TimestampMs) -> Found | None:
    """Return the first record of ``[start, end)`` at or after the time. All local records below ``start`` are older."""
    position = start
    while position < end:
        ask = Ask(PIECE_BYTES, isolation=Isolation.READ_UNCOMMITTED, end=end)
        piece: Fetched = log.fetch(position, ask)
        record = first_in_batches(piece.data, piece.offset, piece.limit, timestamp, f"{log.topic}@{position}")
        if record is not None or piece.next_offset <= position:
            return record
        position = piece.next_offset
    return None


def _refuse_gap(log: LogicalPartition, view: PartitionView, gaps: list[OffsetRange], before: Offset) -> None:
    for gap in gaps:
        if gap.start < before:
            require_readable(view, log.topic)
            raise LogGap(
                "offsets belong to no tier", start=gap.start, end=gap.end, topic=log.topic, partition=log.partition
            )
