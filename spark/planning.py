"""Plan a query as few Spark partitions of about equal size in bytes. Each has all that an executor needs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..app.opening.gateway_access import GatewayAccess
from ..fetch.plan import Groups, PlannedRange, PlannedSplit, plan, planned
from ..fetch.reader import LogReader
from ..runtime.clock import Clock
from ..state.errors import (
    AccessDenied,
    CorruptData,
    ObjectNotFound,
    OffsetOutOfRange,
    PlannedRangeLost,
    SegmentExpired,
    Unavailable,
    UnknownTopic,
)
from ..state.segment import RemoteSegment
from .gateway_planning import gateway_ranges, gateway_splits, is_live
from .open import TakeLeases, open_log
from .options import Assigned, SourceOptions
from .positions import TopicPartition
from .ranges import resolve_ranges

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
) -> Iterator[Group]:
    """Yield the groups. Each partition is routed once, and is cut once, after the size of all partitions is known. CPU
    time and memory depend only on the number of segments and the number of splits.
    """
    ranges = resolve_ranges(options, reader, partitions)
    if take_leases is not None and take_leases(ranges):
        ranges = resolve_ranges(options, reader, partitions)  # the log start may have moved before the leases
    yield from grouped(options, planned(reader, ranges, isolation=options.isolation, tier=options.tier))


def grouped(options: SourceOptions, ranges: list[PlannedRange]) -> Iterator[Group]:
    """Yield the groups of ``ranges``. Each range is cut once, after the size of all ranges is known."""
    total = sum(each.log_bytes for each in ranges)
    cuts = cut_by(total, options.split_bytes, options.min_partitions, os.cpu_count() or 1)
    group: list[PlannedSplit] = []
    for planned_range in ranges:
        for split, begins in planned_range.cut(cuts):
            if begins and group:
                yield tuple(group)
                group = []
            group.append(split)
    if group:
        yield tuple(group)


def cut_by(total: int, largest: int, min_partitions: int | None, slots: int) -> Groups:
    """Return groups that divide ``total`` bytes into few parts (each costs 30 to 50 ms) of at most ``largest`` bytes.

    With ``min_partitions``, there are about that many groups or more. Otherwise all ``slots`` are busy to the end.
    """
    if min_partitions is not None:
        size = max(1, min(largest, total // min_partitions))
        return Groups(size, size)
    rounds = -(-total // (largest * slots)) or 1
    return Groups(max(min(SMALLEST_TARGET, largest), -(-total // (rounds * slots))), largest)


def plan_again(options: SourceOptions, clock: Clock, rest: PlannedSplit) -> Iterable[PlannedSplit]:
    """Plan ``rest`` again: the unread part of a local split that the broker has trimmed. Runs in an executor.

    Return splits of the same records, which are remote where they were copied. Raises PlannedRangeLost if these records
    no longer exist, or were written again under a later leader epoch. The splits keep the planned leader epoch, which
    is checked when local records are read.
    """
    try:
        splits = _routed_again(options, clock, rest)
    except (OffsetOutOfRange, UnknownTopic) as error:
        raise _lost(rest, str(error)) from error
    for split in splits:
        if split.topic_id != rest.topic_id:
            raise _lost(rest, "the topic was re-created")
        for part in split.parts:
            if part.segment is None:
                continue
            epoch = part.segment.leader_epochs.epoch_at(part.offsets.end)
            if epoch is None or (rest.leader_epoch is not None and epoch > rest.leader_epoch):
                raise _lost(rest, f"written again under leader epoch {epoch}")
    return [replace(split, leader_epoch=rest.leader_epoch, plan=rest.plan) for split in splits]


def _routed_again(options: SourceOptions, clock: Clock, rest: PlannedSplit) -> list[PlannedSplit]:
    if isinstance(options.access, GatewayAccess):
        return gateway_splits(options.access, rest)
    key = (rest.topic, rest.partition)
    with open_log(options, clock, Assigned((key,))) as log:
        return plan(log.reader, {key: (rest.start, rest.end)}, isolation=rest.isolation)


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
    if isinstance(options.access, GatewayAccess):
        return is_live(options.access, split, segment)
    where = (split.topic, split.partition)
    try:
        with open_log(options, clock, Assigned((where,))) as log:
            readable = log.reader.view(*where).readable
    except UnknownTopic:
        return False
    except (AccessDenied, Unavailable):
        return None
    return not options.access.bucket_alone and any(each.segment_id == segment.segment_id for each in readable)


def _lost(rest: PlannedSplit, reason: str) -> PlannedRangeLost:
    return PlannedRangeLost(
        "a planned range cannot be read as planned",
        topic=rest.topic,
        partition=rest.partition,
        start=rest.start,
        end=rest.end,
        leader_epoch=rest.leader_epoch,
        reason=reason,
    )
