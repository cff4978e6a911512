"""A pinned plan: exact offset ranges cut by bytes, each with all an executor needs to read it without a view.

Remote wherever an accepted segment in the lineage has the offset, if the broker answers with the leader epoch of the
view's newest term; otherwise local first, and remote below that as far as the broker confirms the lineage. A local
split names the topic id and the leader epoch it was planned under: what was re-written since (an unclean election)
carries a higher epoch in its batches and is refused, never read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..state.epochs import LeaderEpoch
from ..state.ids import TopicId
from ..state.offsets import Offset, OffsetRange
from ..state.routing import AtEnd, Isolation, ReadRemote, Tier
from ..state.segment import RemoteSegment
from .logical import LogicalPartition
from .reader import LogReader, beyond

SPLIT_BYTES = 128 * 1024 * 1024
GUESSED_BYTES_AN_OFFSET = 1024.0
"""For a local range of a partition that has no copied segment to learn from."""


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """``segment`` serves exactly ``offsets``; None: the local tier does."""

    offsets: OffsetRange
    segment: RemoteSegment | None


@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """The records of ``[start, end)`` of one partition; ``parts`` cover it, ascending, without a gap."""

    topic: str
    topic_id: TopicId
    partition: int
    start: Offset
    end: Offset
    isolation: Isolation
    leader_epoch: LeaderEpoch | None
    parts: tuple[PlannedPart, ...]


def plan(
    reader: LogReader,
    ranges: Mapping[tuple[str, int], tuple[Offset, Offset]],
    *,
    isolation: Isolation = Isolation.READ_COMMITTED,
    max_split_bytes: int = SPLIT_BYTES,
    tier: Tier = Tier.PREFER_REMOTE,
) -> list[PlannedSplit]:
    """Splits of ``(topic, partition) -> (start, end)``, end exclusive, in order.

    ``tier`` LOCAL and REMOTE keep to their tier: OffsetOutOfRange where it does not have an offset.

    Raises OffsetOutOfRange for a range that is not all there, LogGap, UnknownTopic, Unavailable.
    """
    splits: list[PlannedSplit] = []
    for (topic, partition), (start, end) in ranges.items():
        if start < end:
            splits += _splits_of(reader.partition(topic, partition), start, end, isolation, max_split_bytes, tier)
    return splits


def _splits_of(
    log: LogicalPartition, start: Offset, end: Offset, isolation: Isolation, max_split_bytes: int, wanted: Tier
) -> Iterator[PlannedSplit]:
    bounds = log.local_bounds()
    view = log.fresh_view()
    in_term = view.term is not None and view.term.epoch == bounds.leader_epoch
    tier = Tier.AUTO if wanted is Tier.PREFER_REMOTE and not in_term else wanted
    whole = PlannedSplit(
        log.topic,
        log.partition.topic_id,
        log.partition.partition,
        start,
        end,
        isolation,
        bounds.leader_epoch,
        tuple(_parts(log, start, end, isolation, tier)),
    )
    per_offset = _bytes_an_offset(view.readable)
    group: list[PlannedPart] = []
    size = 0.0
    for part in _cut(whole.parts, per_offset, max_split_bytes):
        added = len(part.offsets) * _rate(part, per_offset)
        if group and size + added > max_split_bytes:
            yield _split(whole, group)
            group, size = [], 0.0
        group.append(part)
        size += added
    yield _split(whole, group)


def _parts(
    log: LogicalPartition, start: Offset, end: Offset, isolation: Isolation, tier: Tier
) -> Iterator[PlannedPart]:
    position = start
    while position < end:
        where = log.route(position, isolation, tier)
        if isinstance(where, AtEnd):
            raise beyond(log, end, isolation)
        if isinstance(where, ReadRemote):
            part = PlannedPart(OffsetRange(where.offsets.start, Offset(min(where.offsets.end, end - 1))), where.segment)
        else:
            following = log.view().coverage.next_start(position) if tier is Tier.PREFER_REMOTE else None
            last = end - 1 if following is None else min(end, following) - 1
            part = PlannedPart(OffsetRange(position, Offset(last)), None)
        yield part
        position = Offset(part.offsets.end + 1)
    if end > log.local_bounds(max_age=1.0).end(isolation):
        raise beyond(log, end, isolation)


def _cut(parts: Iterable[PlannedPart], per_offset: float, max_bytes: int) -> Iterator[PlannedPart]:
    """Parts larger than a split, in equal ranges of offsets; border batches are read twice, shown once."""
    for part in parts:
        count = min(len(part.offsets), max(1, -(-int(len(part.offsets) * _rate(part, per_offset)) // max_bytes)))
        for number in range(count):
            first = part.offsets.start + len(part.offsets) * number // count
            last = part.offsets.start + len(part.offsets) * (number + 1) // count - 1
            yield replace(part, offsets=OffsetRange(Offset(first), Offset(last)))


def _rate(part: PlannedPart, otherwise: float) -> float:
    return otherwise if part.segment is None else part.segment.log_bytes / len(part.segment.offsets)


def _bytes_an_offset(segments: tuple[RemoteSegment, ...]) -> float:
    offsets = sum(len(segment.offsets) for segment in segments)
    return sum(segment.log_bytes for segment in segments) / offsets if offsets else GUESSED_BYTES_AN_OFFSET


def _split(whole: PlannedSplit, parts: list[PlannedPart]) -> PlannedSplit:
    return replace(whole, start=parts[0].offsets.start, end=Offset(parts[-1].offsets.end + 1), parts=tuple(parts))
