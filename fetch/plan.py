"""A pinned plan: exact offset ranges cut by size, each with all that an executor needs to read it without a view.

If the broker's leader epoch is that of the view's newest term, the remote tier serves all offsets that it has in the
lineage. Otherwise the local tier is preferred, and the remote tier serves offsets below it if the broker confirms their
lineage. A local split names the topic id and the leader epoch at the time of the plan. After an unclean election, other
records may have replaced the planned ones. Their batches have a higher epoch, so they are refused, never read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..state.offsets import Offset, OffsetRange
from ..state.routing import AtEnd, Isolation, ReadRemote, Tier, begin_of
from ..state.segment import RemoteSegment
from .logical import Ask, LogicalPartition
from .planned_split import PlannedPart as PlannedPart
from .planned_split import PlannedSplit as PlannedSplit
from .reader import LogReader, beyond

SPLIT_BYTES = 256 * 1024 * 1024
GUESSED_BYTES_AN_OFFSET = 1024.0
"""The size assumed for local offsets of a partition that has no copied segment to learn from."""


class Groups:
    """Divides consecutive pieces into groups of about ``target`` bytes. A group has more than ``largest`` bytes only if
    it is a single piece.
    """

    def __init__(self, target: int, largest: int) -> None:
        self.target, self._largest = target, largest
        self._marks, self._size, self._total = 0, 0.0, 0.0

    def begins(self, added: float) -> bool:
        """Add a piece of ``added`` bytes. Return whether it begins a group: the target is nearer without the piece."""
        beyond = self._total + added / 2 > self._marks * self.target
        begins = beyond or self._size + added > self._largest
        if begins:
            self._marks, self._size = self._marks + 1, 0.0
        self._size, self._total = self._size + added, self._total + added
        return begins


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """A complete range, routed but not cut. ``local_rate``: the assumed bytes per offset of local parts."""

    whole: PlannedSplit
    local_rate: float

    @property
    def log_bytes(self) -> int:
        """Return the estimated bytes of log. For local parts, only the number of offsets is known."""
        return int(sum(len(part.offsets) * self._rate(part) for part in self.whole.parts))

    def splits(self, max_bytes: int) -> list[PlannedSplit]:
        """Return the range in splits of about ``max_bytes`` bytes of log."""
        return [split for split, _ in self.cut(Groups(max_bytes, max_bytes))]

    def cut(self, groups: Groups) -> Iterator[tuple[PlannedSplit, bool]]:
        """Yield splits in order, and whether each begins a group. No split contains skipped offsets."""
        split: list[PlannedPart] = []
        first = False
        for part in self.whole.parts:
            rate = self._rate(part)
            for piece in _equal_pieces(part, rate, groups.target):
                begins = groups.begins(len(piece.offsets) * rate)
                if split and (begins or piece.offsets.start > split[-1].offsets.end + 1):
                    yield self._within(split), first
                    split = []
                first = begins if not split else first
                split.append(piece)
        if split:  # else all of it is skipped
            yield self._within(split), first

    def _within(self, parts: list[PlannedPart]) -> PlannedSplit:
        whole, start, end = self.whole, parts[0].offsets.start, Offset(parts[-1].offsets.end + 1)
        place = whole.topic, whole.topic_id, whole.partition
        return PlannedSplit(*place, start, end, whole.isolation, whole.leader_epoch, tuple(parts), whole.plan)

    def _rate(self, part: PlannedPart) -> float:
        return self.local_rate if part.segment is None else part.segment.log_bytes / len(part.segment.offsets)


def plan(
    reader: LogReader,
    ranges: Mapping[tuple[str, int], tuple[Offset, Offset]],
    *,
    isolation: Isolation = Isolation.READ_COMMITTED,
    max_split_bytes: int = SPLIT_BYTES,
    tier: Tier = Tier.PREFER_REMOTE,
) -> list[PlannedSplit]:
    """Return splits of ``(topic, partition) -> (start, end)``, end exclusive, in order. Raises as `planned`."""
    ranges_of_plan = planned(reader, ranges, isolation=isolation, tier=tier)
    return [split for each in ranges_of_plan for split in each.splits(max_split_bytes)]


def planned(
    reader: LogReader,
    ranges: Mapping[tuple[str, int], tuple[Offset, Offset]],
    *,
    isolation: Isolation = Isolation.READ_COMMITTED,
    tier: Tier = Tier.PREFER_REMOTE,
) -> list[PlannedRange]:
    """Return the route of each ``(topic, partition) -> (start, end)``, end exclusive, in order, without empty ranges.

    ``tier`` LOCAL and REMOTE use only that tier. Time and memory grow with the number of segments, not of splits.

    Raises OffsetOutOfRange if a range is not completely there. Also raises LogGap, UnknownTopic, Unavailable.
    """
    return [
        _planned(reader.partition(topic, partition), start, end, isolation, tier)
        for (topic, partition), (start, end) in ranges.items()
        if start < end
    ]


def _planned(log: LogicalPartition, start: Offset, end: Offset, isolation: Isolation, choice: Tier) -> PlannedRange:
    bounds = log.local_bounds()
    view = log.fresh_view()
    in_term = view.term is not None and view.term.epoch == bounds.leader_epoch
    tier = Tier.AUTO if choice is Tier.PREFER_REMOTE and not in_term else choice
    parts = tuple(_parts(log, start, end, isolation, tier))
    topic_id, partition = log.partition.topic_id, log.partition.partition
    whole = PlannedSplit(log.topic, topic_id, partition, start, end, isolation, bounds.leader_epoch, parts)
    return PlannedRange(whole, bytes_an_offset(view.readable))


def _parts(
    log: LogicalPartition, start: Offset, end: Offset, isolation: Isolation, tier: Tier
) -> Iterator[PlannedPart]:
    position = start
    while position < end:
        where = log.route(position, isolation, tier)
        position = begin_of(where)  # after a gap that a person accepted
        if position >= end:
            break
        if isinstance(where, AtEnd):
            raise beyond(log, end, isolation)
        if isinstance(where, ReadRemote):
            # following parts without a gap are remote, too: routing each of them would check the view each time
            for segment, offsets in log.parts(where, Ask(0, isolation, tier, end)):
                part = PlannedPart(offsets, segment)
                yield part
        else:
            following = log.view().coverage.next_start(position) if tier is Tier.PREFER_REMOTE else None
            last = end - 1 if following is None else min(end, following) - 1
            part = PlannedPart(OffsetRange(position, Offset(last)), None)
            yield part
        position = Offset(part.offsets.end + 1)
    if end > log.local_bounds(max_age=1.0).end(isolation):
        raise beyond(log, end, isolation)


def _equal_pieces(part: PlannedPart, rate: float, max_bytes: int) -> Iterator[PlannedPart]:
    """Yield the part in equal ranges of about ``max_bytes``. A batch at a border is read twice, but shown once."""
    length, start = len(part.offsets), part.offsets.start
    count = min(length, max(1, -(-int(length * rate) // max_bytes)))
    for number in range(count):
        first, last = start + length * number // count, start + length * (number + 1) // count - 1
        yield PlannedPart(OffsetRange(Offset(first), Offset(last)), part.segment)


def bytes_an_offset(segments: tuple[RemoteSegment, ...]) -> float:
    """Return the average bytes per offset of a partition with these segments."""
    offsets = sum(len(segment.offsets) for segment in segments)
    return sum(segment.log_bytes for segment in segments) / offsets if offsets else GUESSED_BYTES_AN_OFFSET
