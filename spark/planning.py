"""In the driver: options -> Spark partitions, few and of even size in bytes, each with all an executor needs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from ..fetch.plan import PlannedSplit, plan
from ..fetch.reader import LogReader
from ..runtime.clock import Clock
from ..state.errors import OffsetOutOfRange, PlannedRangeLost, UnknownTopic
from .open import open_log
from .options import Assigned, SourceOptions
from .positions import TopicPartition
from .ranges import Extent, resolve_ranges

SMALLEST_TARGET = 4 * 1024 * 1024
"""Less than this is not worth a Spark partition of its own (31 to 48 ms)."""
GUESSED_BYTES_AN_OFFSET = 1024.0

Group = tuple[PlannedSplit, ...]


def plan_groups(options: SourceOptions, clock: Clock) -> list[Group]:
    """One group of splits a Spark partition, in order of topic, partition and offset; no group when there is nothing.

    Raises what `open_log` and `resolve_ranges` raise.
    """
    with open_log(options, clock) as log:
        ranges = resolve_ranges(options, log.reader, log.partitions)
        if not ranges:
            return []
        splits = _planned(options, log.reader, ranges, options.split_bytes)
        total = sum(_size(log.reader, split) for split in splits)
        target = target_bytes(total, options.split_bytes, options.min_partitions, os.cpu_count() or 1)
        if target < options.split_bytes:
            splits = _planned(options, log.reader, ranges, target)
        return pack([(split, _size(log.reader, split)) for split in splits], target)


def target_bytes(total: int, largest: int, min_partitions: int | None, slots: int) -> int:
    """How large a Spark partition should be: as Spark cuts files, by ``slots``, or so small that there are enough."""
    if min_partitions is not None:
        return max(1, min(largest, total // min_partitions))
    return min(largest, max(SMALLEST_TARGET, -(-total // slots)))


def pack(sized: Sequence[tuple[PlannedSplit, int]], target: int) -> list[Group]:
    """Neighbours share a group as long as it stays within ``target`` bytes."""
    groups: list[list[PlannedSplit]] = []
    size = 0
    for split, added in sized:
        if not groups or size + added > target:
            groups.append([])
            size = 0
        groups[-1].append(split)
        size += added
    return [tuple(group) for group in groups]


def plan_again(options: SourceOptions, clock: Clock, rest: PlannedSplit) -> Iterable[PlannedSplit]:
    """The rest of a local split that the broker trimmed since: the same records, from the remote tier.

    In an executor. What was written again under a later leader epoch is not the same: PlannedRangeLost.
    """
    key = (rest.topic, rest.partition)
    try:
        with open_log(options, clock, Assigned((key,))) as log:
            splits = plan(log.reader, {key: (rest.start, rest.end)}, isolation=rest.isolation)
    except (OffsetOutOfRange, UnknownTopic) as error:
        raise _lost(rest, str(error)) from error
    for split in splits:
        if split.topic_id != rest.topic_id:
            raise _lost(rest, "the topic was re-created")
        for part in split.parts:
            if part.segment is None:
                raise _lost(rest, "it is not in the remote tier")
            epoch = part.segment.leader_epochs.epoch_at(part.offsets.end)
            if epoch is None or (rest.leader_epoch is not None and epoch > rest.leader_epoch):
                raise _lost(rest, f"written again under leader epoch {epoch}")
    return splits


def _planned(
    options: SourceOptions, reader: LogReader, ranges: Mapping[TopicPartition, Extent], split_bytes: int
) -> list[PlannedSplit]:
    return plan(reader, ranges, isolation=options.isolation, max_split_bytes=split_bytes, tier=options.tier)


def _size(reader: LogReader, split: PlannedSplit) -> int:
    """Bytes of log, as far as they can be told: of the local tier only offsets are known."""
    segments = reader.view(split.topic, split.partition).readable
    offsets = sum(len(segment.offsets) for segment in segments)
    rate = sum(segment.log_bytes for segment in segments) / offsets if offsets else GUESSED_BYTES_AN_OFFSET
    size = 0.0
    for part in split.parts:
        known = part.segment
        size += len(part.offsets) * (rate if known is None else known.log_bytes / len(known.offsets))
    return int(size)


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
