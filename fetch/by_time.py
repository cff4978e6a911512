"""The first record at or after a time, over both tiers; correct for timestamps that go backwards.

The broker is asked first, its local start is read after that, and then the remote tier is searched below it: whatever
a trim moved out of the broker's reach meanwhile lies below the later local start. The lower offset wins. Markers are
never the answer of `offset_for_time`; a broker's may be one, so what stands in for it says ``markers``. Where the
remote tier may be that of a lost branch nothing is said of it, nor of what comes after.
"""

from __future__ import annotations

from ..log.batch import iter_batches
from ..log.record_parser import parse_records
from ..log.time_index import lookup_offset, parse_time_index
from ..state.errors import LogGap
from ..state.later_release import require_readable
from ..state.offsets import Offset, OffsetRange, TimestampMs
from ..state.partition_view import PartitionView
from ..state.routing import Isolation, LocalBounds, log_start, unconfirmed
from ..state.segment import RemoteSegment
from .logical import Ask, LogicalPartition
from .piece import Fetched
from .remote import RemoteTier

PIECE_BYTES = 1024 * 1024

Found = tuple[Offset, TimestampMs]


def offset_for_time(log: LogicalPartition, remote: RemoteTier, timestamp: TimestampMs) -> Found | None:
    """None when no record is that young. Raises LogGap when offsets that must exist lie before the answer, and
    LineageUnconfirmed where they may be others."""
    local = log.local.offset_at(log.topic, log.partition, timestamp)
    bounds = log.local_bounds()
    found = first_remote(log, remote, timestamp, bounds)
    if found is not None or local is None:
        return found
    # The broker also finds markers, whose time is another clock's, and may answer below its own log start.
    return _scan_local(log, max(local[0], bounds.local_start), bounds.high_watermark, timestamp)


def first_remote(
    log: LogicalPartition, remote: RemoteTier, timestamp: TimestampMs, bounds: LocalBounds, *, markers: bool = False
) -> Found | None:
    """Of what lies below the local start of ``bounds``. Raises as `offset_for_time`."""
    view = log.known(log.fresh_view(max_age=0.0), bounds)
    start = log_start(view, bounds)
    if start >= bounds.local_start:
        return None
    sure = min(log.sure_end(view, bounds), bounds.local_start)
    found = _first_within(log, view, remote, (start, sure), timestamp, markers) if start < sure else None
    if found is None and sure < bounds.local_start:
        raise unconfirmed(view, bounds, sure, offset=max(start, sure))
    return found


def latest_remote(log: LogicalPartition, remote: RemoteTier, above: TimestampMs) -> Found | None:
    """As a broker says it: the first record, or marker, with the latest time below the local start, where that is
    ``above`` or later.

    Raises LineageUnconfirmed where it may be another log's.
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
        found = first_in_segment(remote, segment, part, segment.max_timestamp, markers=True)
        if found is not None:  # else it is of a record that another part of the segment had
            return found
    return None


def _first_within(
    log: LogicalPartition,
    view: PartitionView,
    remote: RemoteTier,
    within: tuple[Offset, Offset],
    timestamp: TimestampMs,
    markers: bool,
) -> Found | None:
    """``within``: start, and end exclusive."""
    offsets = OffsetRange(within[0], Offset(within[1] - 1))
    gaps = view.open_gaps(offsets)
    for owned in view.coverage.owned:
        part = owned.offsets.overlap(offsets)
        if part is None or owned.segment.max_timestamp < timestamp:
            continue
        found = first_in_segment(remote, owned.segment, part, timestamp, markers=markers)
        if found is not None:
            _refuse_gap(log, view, gaps, found[0])
            return found
    _refuse_gap(log, view, gaps, within[1])
    return None


def first_in_segment(
    remote: RemoteTier, segment: RemoteSegment, offsets: OffsetRange, timestamp: TimestampMs, *, markers: bool = False
) -> Found | None:
    """The first record of the range at or after a time. Begins where the time index proves that all before is older."""
    index = parse_time_index(remote.time_index(segment), segment.offsets.start, segment.object_key)
    begin = lookup_offset(index, timestamp)
    position = offsets.start if begin is None else Offset(max(begin, offsets.start))
    while position <= offsets.end:
        rest = OffsetRange(position, offsets.end)
        piece = remote.read(segment, rest, PIECE_BYTES, Isolation.READ_UNCOMMITTED)
        end = Offset(offsets.end + 1)
        found = first_in_batches(piece.data, position, end, timestamp, segment.object_key, markers=markers)
        if found is not None:
            return found
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
    """The first record of ``[start, stop)`` at or after a time; only batches young enough are decoded.

    ``markers``: or marker; a batch of them has one, and its time.
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
    """All local records before ``start`` are older."""
    position = start
    while position < end:
        ask = Ask(PIECE_BYTES, isolation=Isolation.READ_UNCOMMITTED, end=end)
        piece: Fetched = log.fetch(position, ask)
        found = first_in_batches(piece.data, piece.offset, piece.limit, timestamp, f"{log.topic}@{position}")
        if found is not None or piece.next_offset <= position:
            return found
        position = piece.next_offset
    return None


def _refuse_gap(log: LogicalPartition, view: PartitionView, gaps: list[OffsetRange], before: Offset) -> None:
    for gap in gaps:
        if gap.start < before:
            require_readable(view, log.topic)
            raise LogGap(
                "offsets belong to no tier", start=gap.start, end=gap.end, topic=log.topic, partition=log.partition
            )
