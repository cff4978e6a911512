"""Plan a query as few Spark partitions of about equal size in bytes. Each has all that an executor needs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from ..app.opening.gateway_access import GatewayAccess
from ..fetch.piece import no_rule
from ..fetch.plan import Groups, PlannedRange, PlannedSplit, plan, planned
from ..fetch.planned_split import range_lost
from ..fetch.reader import LogReader
from ..runtime.clock import Clock
from ..state.errors import (
    AccessDenied,
    CorruptData,
    InvalidRequest,
    ObjectNotFound,
    OffsetOutOfRange,
    SegmentExpired,
    Unavailable,
    UnknownTopic,
)
from ..state.offsets import Extent, Offset, TimestampMs
from ..state.routing import Tier
from ..state.segment import RemoteSegment
from .open import TakeLeases, open_log
from .options import Assigned, Choice, SourceOptions, Subscribed
from .positions import EARLIEST, LATEST, Stated, TopicPartition, check_complete, start_above_end

if TYPE_CHECKING:
    from ..fetch.gateway import GatewayClient
    from ..fetch.source import RecordSource

log = logging.getLogger("tierstate.spark")
RANGES = 1000
"""The maximum number of ranges in one request for a plan."""
SMALLEST_TARGET = 4 * 1024 * 1024
"""The smallest target size of a Spark partition, in bytes. A Spark partition costs 31 to 48 ms."""

Group = tuple[PlannedSplit, ...]


def plan_groups(options: SourceOptions, clock: Clock) -> Iterator[Group]:
    """Yield one group of splits for each Spark partition, in order of topic, partition and offset.

    Yields no group if there is nothing to read. Raises the errors of `open_log` and `resolve_ranges` or, with a
    gateway, of `gateway_ranges`.
    """
    if isinstance(options.access, GatewayAccess):
        yield from grouped(options, gateway_ranges(options, options.access))
        return
    with open_log(options, clock) as log:
        yield from groups(options, log.reader, log.partitions, log.take_leases)


def groups(
    options: SourceOptions,
    reader: LogReader,
    partitions: tuple[TopicPartition, ...],
    take_leases: TakeLeases | None = None,
    *,
    together: int = 0,
) -> Iterator[Group]:
    """Yield the groups, as `grouped` does. Each partition is routed once, and is cut once, after the size of all
    partitions is known. CPU time and memory depend only on the number of segments and the number of splits.
    """
    ranges = resolve_ranges(options, reader, partitions)
    if take_leases is not None and take_leases(ranges):
        ranges = resolve_ranges(options, reader, partitions)  # the log start may have moved before the leases
    yield from grouped(options, planned(reader, ranges, isolation=options.isolation, tier=options.tier), together)


def grouped(options: SourceOptions, ranges: list[PlannedRange], together: int = 0) -> Iterator[Group]:
    """Yield the groups of ``ranges``: one or more for each range, of at most ``tierstate.split_bytes``.

    Consecutive ranges of up to ``together`` bytes in all are one group.
    """
    sizes = [each.log_bytes for each in ranges]
    if options.min_partitions is None:
        counts = group_counts(sizes, groups_for(sum(sizes), options.split_bytes, os.cpu_count() or 1))
    else:
        counts = group_counts([each.whole.end - each.whole.start for each in ranges], options.min_partitions)
    group: list[PlannedSplit] = []
    filled = 0
    for planned_range, size, count in zip(ranges, sizes, counts, strict=True):
        target = max(1, min(-(-size // count), options.split_bytes))
        fits = filled + size <= together
        for number, (split, begins) in enumerate(planned_range.cut(Groups(target, options.split_bytes))):
            if begins and group and not (fits and number == 0):
                yield tuple(group)
                group = []
            group.append(split)
        filled = filled + size if fits else size
    if group:
        yield tuple(group)


def groups_for(total: int, largest: int, slots: int) -> int:
    """Return the number of groups that keeps all ``slots`` busy to the end, as few as possible for ``total`` bytes."""
    rounds = -(-total // (largest * slots)) or 1
    return -(-total // max(min(SMALLEST_TARGET, largest), -(-total // (rounds * slots))))


def group_counts(sizes: list[int], least: int) -> list[int]:
    """Return the number of groups of each range: one, or more for large ranges if there are fewer than ``least``.

    The sum is about ``least``, by the arithmetic of Spark's Kafka source (`KafkaOffsetRangeCalculator.getRanges`).
    """
    if len(sizes) >= least:
        return [1] * len(sizes)
    total = sum(sizes)
    counts = [_share(size, total, least) for size in sizes]
    divided = sum(size for size, count in zip(sizes, counts, strict=True) if count > 1)
    rest = max(1, least - counts.count(1))
    return [1 if count == 1 else _share(size, divided, rest) for size, count in zip(sizes, counts, strict=True)]


def _share(size: int, total: int, count: int) -> int:
    return max(1, int(size / max(1, total) * count + 0.5))


def plan_again(options: SourceOptions, clock: Clock, rest: PlannedSplit) -> Iterable[PlannedSplit]:
    """Plan ``rest`` again: the unread part of a local split that the broker has trimmed. Runs in an executor.

    Return splits of the same records, which are remote where they were copied. Raises PlannedRangeLost if these records
    no longer exist, or were written again under a later leader epoch. The splits keep the planned leader epoch, which
    is checked when local records are read.
    """
    try:
        splits = _routed_again(options, clock, rest)
    except (OffsetOutOfRange, UnknownTopic) as error:
        raise range_lost(rest, rest.start, str(error)) from error
    for split in splits:
        if split.topic_id != rest.topic_id:
            raise range_lost(rest, rest.start, "the topic was re-created")
        for part in split.parts:
            if part.segment is None:
                continue
            epoch = part.segment.leader_epochs.epoch_at(part.offsets.end)
            if epoch is None or (rest.leader_epoch is not None and epoch > rest.leader_epoch):
                raise range_lost(rest, rest.start, f"written again under leader epoch {epoch}")
    return [replace(split, leader_epoch=rest.leader_epoch, plan=rest.plan) for split in splits]


def _routed_again(options: SourceOptions, clock: Clock, rest: PlannedSplit) -> list[PlannedSplit]:
    key = (rest.topic, rest.partition)
    ranges = {key: (rest.start, rest.end)}
    if isinstance(options.access, GatewayAccess):
        from ..fetch.gateway_plans import asked_plan

        with closing(options.access.client()) as client:
            _, ranges_now = asked_plan(client, ranges, rest.isolation, Tier.PREFER_REMOTE, 0.0)
            return [each.whole for each in ranges_now]
    with open_log(options, clock, Assigned((key,))) as opened:
        return plan(opened.reader, ranges, isolation=rest.isolation)


def missing(options: SourceOptions, clock: Clock, split: PlannedSplit, error: ObjectNotFound) -> Exception:
    """Return the error for a missing planned object: SegmentExpired or, if its segment is still live, CorruptData.

    Runs in an executor. Returns ``error`` itself if the tier-state topic or the gateway cannot be read.
    """
    key = str(error.facts.get("key", ""))
    planned = (part.segment for part in split.parts if part.segment is not None)
    segment = next((each for each in planned if key.startswith(each.object_key)), None)
    if segment is None:
        return error
    live = _is_live(options, clock, split, segment)
    if live is None:
        return error
    unnamed = no_rule(error, topic=split.topic, partition=split.partition)
    if unnamed is not None and (live or options.access.bucket_alone):
        return unnamed
    kind, message = (
        (CorruptData, "an object of a live segment is missing")
        if live
        else (SegmentExpired, "segment was deleted after the query was planned")
    )
    return kind(
        message,
        object_key=key,
        topic=split.topic,
        partition=split.partition,
        segment_id=segment.segment_id,
        offsets=segment.offsets,
    )


def _is_live(options: SourceOptions, clock: Clock, split: PlannedSplit, segment: RemoteSegment) -> bool | None:
    """Return whether the segment is readable now. Returns None if the gateway or the brokers cannot be queried."""
    where, wanted = (split.topic, split.partition), str(segment.segment_id)
    try:
        if isinstance(options.access, GatewayAccess):
            with closing(options.access.client()) as client:
                segments = client.segments(*where)
            live = {each["segment_id"] for each in segments if each["state"] == "COPY_SEGMENT_FINISHED"}
        else:
            with open_log(options, clock, Assigned((where,))) as opened:
                live = {str(each.segment_id) for each in opened.reader.view(*where).readable}
    except (UnknownTopic, SegmentExpired):
        return False
    except (AccessDenied, Unavailable):
        return None
    return not options.access.bucket_alone and wanted in live


def gateway_ranges(options: SourceOptions, access: GatewayAccess) -> list[PlannedRange]:
    """Return the ranges that the options choose, routed and leased, in order of topic and partition.

    Raises InvalidRequest, UnknownTopic, OffsetOutOfRange, LogGap, AccessDenied, Unavailable.
    """
    with closing(access.client()) as client:
        partitions = tuple(_chosen(options.choice, client))
        try:
            return _planned(options, client, resolve_ranges(options, client, partitions))
        except OffsetOutOfRange:
            # the log start may have moved before the lease was written: this raises if requested offsets were deleted
            return _planned(options, client, resolve_ranges(options, client, partitions))


def _planned(options: SourceOptions, client: GatewayClient, ranges: dict[TopicPartition, Extent]) -> list[PlannedRange]:
    from ..fetch.gateway_plans import leased_plan  # most queries have no gateway, and load no HTTP client

    plan: list[PlannedRange] = []
    items = list(ranges.items())
    for at in range(0, len(items), RANGES):
        some = dict(items[at : at + RANGES])
        plan += leased_plan(client, some, options.isolation, options.tier, options.lease, log.warning)[1]
    return plan


def _chosen(choice: Choice, client: GatewayClient) -> Iterator[TopicPartition]:
    """Yield the partitions of the choice that the gateway serves, ascending. Raises UnknownTopic."""
    if isinstance(choice, Assigned):
        numbers = {topic: client.partitions(topic) for topic in dict.fromkeys(topic for topic, _ in choice.partitions)}
        for topic, partition in choice.partitions:
            if partition not in numbers[topic]:
                raise UnknownTopic("option assign: no such partition", topic=topic, partition=partition)
            yield topic, partition
        return
    if isinstance(choice, Subscribed):
        names = sorted(choice.topics)
    else:
        names = sorted(name for name in client.topics() if choice.pattern.fullmatch(name))
    for name in names:
        for partition in client.partitions(name):
            yield name, partition


def resolve_ranges(
    options: SourceOptions, source: RecordSource, partitions: tuple[TopicPartition, ...]
) -> dict[TopicPartition, Extent]:
    """Return the range ``[start, end)`` of every partition that has records to read.

    Raises OffsetOutOfRange if requested offsets do not exist; if ``failOnDataLoss`` is false, the existing offsets are
    returned instead. Raises InvalidRequest, for a start above the end too. Also raises LogGap and Unavailable.
    """
    check_complete(options.starting, list(partitions))
    check_complete(options.ending, list(partitions))
    ranges: dict[TopicPartition, Extent] = {}
    for key in partitions:
        extent = source.extent(*key, options.isolation, options.tier)
        start = _start(options, source, key, extent)
        end = _end(options, source, key, extent)
        if start > end:
            raise start_above_end(options.starting, key, start, end)
        if start < end:
            ranges[key] = Extent(start, end)
    return ranges


def starting_offsets(
    options: SourceOptions, source: RecordSource, partitions: tuple[TopicPartition, ...]
) -> dict[TopicPartition, Offset]:
    """Return the first offset of each partition in a stream without a checkpoint. Raises as `resolve_ranges`."""
    check_complete(options.starting, list(partitions))
    return {
        key: _start(options, source, key, source.extent(*key, options.isolation, options.tier)) for key in partitions
    }


def _start(options: SourceOptions, source: RecordSource, key: TopicPartition, extent: Extent) -> Offset:
    stated, value = options.starting, options.starting.of(key)
    if not stated.by_time:
        if value in (LATEST, EARLIEST):
            return extent.end if value == LATEST else extent.start
        return _within(options, stated, key, value, extent)
    first = _first_at(stated, source, key)
    if first is not None:
        return _clipped(first, extent)
    if options.latest_when_no_match:
        return extent.end
    raise InvalidRequest(
        f"option {stated.option}: no record at or after this time"
        " (startingOffsetsByTimestampStrategy=latest reads nothing then)",
        topic=key[0],
        partition=key[1],
        timestamp=value,
    )


def _end(options: SourceOptions, source: RecordSource, key: TopicPartition, extent: Extent) -> Offset:
    stated, value = options.ending, options.ending.of(key)
    if stated.by_time:
        first = _first_at(stated, source, key)
        return extent.end if first is None else _clipped(first, extent)
    if value == LATEST:
        return extent.end
    return _within(options, stated, key, value, extent)


def _first_at(side: Stated, source: RecordSource, key: TopicPartition) -> Offset | None:
    time = TimestampMs(side.of(key))
    if side.markers and isinstance(source, LogReader):
        return source.first_at(*key, time, markers=True)
    return source.first_at(*key, time)


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
