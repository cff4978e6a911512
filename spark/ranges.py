"""Resolve options into exact offset ranges by the current ends of the log. A query reads exactly these ranges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ..state.errors import InvalidRequest, OffsetOutOfRange
from ..state.offsets import Extent, Offset, TimestampMs
from ..state.routing import Isolation, Tier
from .options import SourceOptions
from .positions import EARLIEST, LATEST, ByOffset, ByTime, Edge, Stated, TopicPartition, check_complete


class Extents(Protocol):
    """The methods of `LogReader`, or of a gateway, that resolve ranges."""

    def extent(self, topic: str, partition: int, *, isolation: Isolation, tier: Tier) -> Extent: ...

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> tuple[Offset, TimestampMs] | None: ...


def resolve_ranges(
    options: SourceOptions, reader: Extents, partitions: tuple[TopicPartition, ...]
) -> dict[TopicPartition, Extent]:
    """Return the range ``[start, end)`` of every partition that has records to read.

    Raises OffsetOutOfRange if requested offsets do not exist; if ``failOnDataLoss`` is false, the existing offsets are
    returned instead. Also raises InvalidRequest, LogGap and Unavailable.
    """
    check_complete(options.starting, list(partitions))
    check_complete(options.ending, list(partitions))
    ranges: dict[TopicPartition, Extent] = {}
    for key in partitions:
        extent = reader.extent(*key, isolation=options.isolation, tier=options.tier)
        start = _start(options, reader, key, extent)
        end = _end(options, reader, key, extent)
        if start < end:
            ranges[key] = Extent(start, end)
    return ranges


def starting_offsets(
    options: SourceOptions, reader: Extents, partitions: tuple[TopicPartition, ...]
) -> dict[TopicPartition, Offset]:
    """Return the first offset of each partition in a stream without a checkpoint. Raises as `resolve_ranges`."""
    check_complete(options.starting, list(partitions))
    return {
        key: _start(options, reader, key, reader.extent(*key, isolation=options.isolation, tier=options.tier))
        for key in partitions
    }


def _start(options: SourceOptions, reader: Extents, key: TopicPartition, extent: Extent) -> Offset:
    stated = options.starting
    match stated.position:
        case Edge(edge):
            return extent.end if edge == LATEST else extent.start
        case ByOffset(offsets):
            if offsets[key] in (LATEST, EARLIEST):
                return extent.end if offsets[key] == LATEST else extent.start
            return _within(options, stated, key, offsets[key], extent)
        case ByTime(times):
            time = times[key] if isinstance(times, Mapping) else times
            first = reader.offset_for_time(*key, time)
            if first is not None:
                return _clipped(first[0], extent)
            if options.latest_when_no_match:
                return extent.end
            raise InvalidRequest(
                f"option {stated.option}: no record at or after this time"
                " (startingOffsetsByTimestampStrategy=latest reads nothing then)",
                topic=key[0],
                partition=key[1],
                timestamp=time,
            )


def _end(options: SourceOptions, reader: Extents, key: TopicPartition, extent: Extent) -> Offset:
    stated = options.ending
    match stated.position:
        case Edge():
            return extent.end
        case ByOffset(offsets):
            if offsets[key] == LATEST:
                return extent.end
            # an end below the log start is an empty range, not a loss: the start has been checked already
            return _within(options, stated, key, max(offsets[key], extent.start), extent)
        case ByTime(times):
            first = reader.offset_for_time(*key, times[key] if isinstance(times, Mapping) else times)
            return extent.end if first is None else _clipped(first[0], extent)


def _clipped(offset: int, extent: Extent) -> Offset:
    return Offset(min(max(offset, extent.start), extent.end))


def _within(options: SourceOptions, side: Stated, key: TopicPartition, offset: int, extent: Extent) -> Offset:
    if extent.start <= offset <= extent.end or not options.fail_on_data_loss:
        return _clipped(offset, extent)
    raise OffsetOutOfRange(
        f"option {side.option}: these offsets are not there (failOnDataLoss=false reads those that are)",
        valid_start=extent.start,
        valid_end=extent.end,
        topic=key[0],
        partition=key[1],
        offset=offset,
    )
