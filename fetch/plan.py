"""A pinned plan: exact offset ranges cut by bytes, each with all an executor needs to read it without a view.

Remote wherever an accepted segment in the lineage has the offset, if the broker answers with the leader epoch of the
view's newest term; otherwise local first, and remote below that as far as the broker confirms the lineage. A local
split names the topic id and the leader epoch it was planned under: what was re-written since (an unclean election)
carries a higher epoch in its batches and is refused, never read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from ..log.batch import iter_batches
from ..runtime.clock import Clock
from ..state.epochs import LeaderEpoch
from ..state.errors import InvalidRequest, OffsetOutOfRange, PlannedRangeLost, UnknownTopic
from ..state.ids import TopicId, TopicIdPartition
from ..state.offsets import Offset, OffsetRange
from ..state.routing import AtEnd, Isolation, ReadRemote, Tier
from ..state.segment import RemoteSegment
from ..storage.object_store import ObjectReader
from ..storage.segment.cache import ChunkCache
from ..storage.segment.encryption import KeyUnwrapper
from .local import LocalTier
from .logical import Ask, LogicalPartition
from .piece import Fetched, LogicalBounds
from .read_ahead import read_ahead
from .reader import PIECE_BYTES, PIECES_AHEAD, LogReader, beyond
from .remote import RemoteTier

SPLIT_BYTES = 128 * 1024 * 1024
GUESSED_BYTES_AN_OFFSET = 1024.0
"""For a local range of a partition that has no copied segment to learn from."""
EXECUTOR_CACHE_BYTES = 32 * 1024 * 1024
EXECUTOR_PREFETCH_BYTES = 16 * 1024 * 1024


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


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """A whole range, routed and not cut. ``local_rate``: bytes an offset where no segment tells them."""

    whole: PlannedSplit
    local_rate: float

    @property
    def log_bytes(self) -> int:
        """Bytes of log, as far as they can be told: of the local tier only offsets are known."""
        return int(sum(len(part.offsets) * self._rate(part) for part in self.whole.parts))

    def cut(self, max_bytes: int) -> Iterator[tuple[PlannedSplit, int]]:
        """Splits in order, of at most about ``max_bytes`` of log, and how many each has."""
        group: list[PlannedPart] = []
        size = 0.0
        for part in self.whole.parts:
            rate = self._rate(part)
            for piece in _equal_pieces(part, rate, max_bytes):
                added = len(piece.offsets) * rate
                if group and size + added > max_bytes:
                    yield _split(self.whole, group), int(size)
                    group, size = [], 0.0
                group.append(piece)
                size += added
        yield _split(self.whole, group), int(size)

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
    """Splits of ``(topic, partition) -> (start, end)``, end exclusive, in order. As `planned`."""
    found = planned(reader, ranges, isolation=isolation, tier=tier)
    return [split for each in found for split, _ in each.cut(max_split_bytes)]


def planned(
    reader: LogReader,
    ranges: Mapping[tuple[str, int], tuple[Offset, Offset]],
    *,
    isolation: Isolation = Isolation.READ_COMMITTED,
    tier: Tier = Tier.PREFER_REMOTE,
) -> list[PlannedRange]:
    """Where each of ``(topic, partition) -> (start, end)`` is, end exclusive, in order, without what is empty.

    ``tier`` LOCAL and REMOTE keep to their tier: OffsetOutOfRange where it does not have an offset. Time and memory
    grow with the segments, whatever they are cut into later.

    Raises OffsetOutOfRange for a range that is not all there, LogGap, UnknownTopic, Unavailable.
    """
    return [
        _planned(reader.partition(topic, partition), start, end, isolation, tier)
        for (topic, partition), (start, end) in ranges.items()
        if start < end
    ]


def _planned(log: LogicalPartition, start: Offset, end: Offset, isolation: Isolation, wanted: Tier) -> PlannedRange:
    bounds = log.local_bounds()
    view = log.fresh_view()
    in_term = view.term is not None and view.term.epoch == bounds.leader_epoch
    tier = Tier.AUTO if wanted is Tier.PREFER_REMOTE and not in_term else wanted
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
        if isinstance(where, AtEnd):
            raise beyond(log, end, isolation)
        if isinstance(where, ReadRemote):
            part = PlannedPart(OffsetRange(where.offsets.start, Offset(min(where.offsets.end, end - 1))), where.segment)
            yield part
            # what follows without a gap is served as this is: routed one by one, each would ask for the view anew
            for segment, offsets in log.following(where, Ask(0, isolation, tier, end)):
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
    """A part larger than a split, in equal ranges of offsets; border batches are read twice, shown once."""
    length, start = len(part.offsets), part.offsets.start
    count = min(length, max(1, -(-int(length * rate) // max_bytes)))
    for number in range(count):
        first, last = start + length * number // count, start + length * (number + 1) // count - 1
        yield PlannedPart(OffsetRange(Offset(first), Offset(last)), part.segment)


def bytes_an_offset(segments: tuple[RemoteSegment, ...]) -> float:
    """Of a partition with these segments, on average."""
    offsets = sum(len(segment.offsets) for segment in segments)
    return sum(segment.log_bytes for segment in segments) / offsets if offsets else GUESSED_BYTES_AN_OFFSET


def _split(whole: PlannedSplit, parts: list[PlannedPart]) -> PlannedSplit:
    start, end = parts[0].offsets.start, Offset(parts[-1].offsets.end + 1)
    return PlannedSplit(
        whole.topic,
        whole.topic_id,
        whole.partition,
        start,
        end,
        whole.isolation,
        whole.leader_epoch,
        tuple(parts),
    )


Reroute = Callable[[PlannedSplit], Iterable[PlannedSplit]]
"""Asked for the rest of a local split that the broker no longer has: how to read it now."""


def read_split(
    split: PlannedSplit,
    store: ObjectReader,
    local: LocalTier | None,
    clock: Clock,
    *,
    keys: KeyUnwrapper | None = None,
    piece_bytes: int = PIECE_BYTES,
    reroute: Reroute | None = None,
) -> Iterator[Fetched]:
    """Exactly the planned records; what an executor runs. Memory as `reader.py` says, and a small chunk cache, into
    which the split's next segments are loaded ahead.

    Raises PlannedRangeLost when the range cannot be read as planned any more, ObjectNotFound when a planned segment
    expired.
    """
    return read_ahead(_read_split(split, store, local, clock, keys, piece_bytes, reroute), PIECES_AHEAD)


def _read_split(
    split: PlannedSplit,
    store: ObjectReader,
    local: LocalTier | None,
    clock: Clock,
    keys: KeyUnwrapper | None,
    piece_bytes: int,
    reroute: Reroute | None,
) -> Iterator[Fetched]:
    cache = ChunkCache(EXECUTOR_CACHE_BYTES)
    with closing(RemoteTier(store, cache, clock, keys=keys, prefetch=EXECUTOR_PREFETCH_BYTES)) as remote:
        yield from _read_parts(split, remote, local, piece_bytes, reroute)


def _read_parts(
    split: PlannedSplit, remote: RemoteTier, local: LocalTier | None, piece_bytes: int, reroute: Reroute | None
) -> Iterator[Fetched]:
    bounds = LogicalBounds(split.start, split.start, None, split.end, split.end)
    for number, part in enumerate(split.parts):
        following = partial(_following, split.parts[number + 1 :])
        position, limit = part.offsets.start, Offset(part.offsets.end + 1)
        while position < limit:
            if part.segment is not None:
                rest = OffsetRange(position, part.offsets.end)
                read = remote.read(part.segment, rest, piece_bytes, split.isolation, following)
                piece = Fetched(read.data, Tier.REMOTE, read.aborted, position, read.next_offset, limit, bounds)
            else:
                try:
                    piece = _read_local(split, position, limit, local, piece_bytes, bounds)
                except OffsetOutOfRange as error:
                    if reroute is None:
                        raise _lost(split, position, str(error)) from error
                    rest_of_part = replace(split, start=position, end=limit, parts=())
                    for again in reroute(rest_of_part):
                        yield from _read_parts(again, remote, local, piece_bytes, None)
                    break
            if piece.data:
                yield piece
            position = piece.next_offset


def _following(parts: tuple[PlannedPart, ...]) -> Iterator[tuple[RemoteSegment, OffsetRange]]:
    for part in parts:
        if part.segment is None:
            return
        yield part.segment, part.offsets


def _read_local(
    split: PlannedSplit,
    position: Offset,
    limit: Offset,
    local: LocalTier | None,
    piece_bytes: int,
    bounds: LogicalBounds,
) -> Fetched:
    if local is None:
        raise InvalidRequest("a local split needs a broker", topic=split.topic, partition=split.partition)
    place = TopicIdPartition(split.topic_id, split.partition)
    try:
        read = local.fetch(
            split.topic,
            place,
            position,
            max_bytes=piece_bytes,
            isolation=split.isolation,
            wait_s=0.0,
            leader_epoch=None,
        )
    except UnknownTopic as error:
        raise _lost(split, position, str(error)) from error
    if not read.data:
        raise _lost(split, position, "the log ends here now")
    if split.leader_epoch is not None:
        for header in iter_batches(read.data, source=f"{split.topic}-{split.partition}@{position}", verify_crc=False):
            if header.base_offset < limit and header.partition_leader_epoch > split.leader_epoch:
                raise _lost(split, position, f"written again under leader epoch {header.partition_leader_epoch}")
    return Fetched(read.data, Tier.LOCAL, read.aborted, position, read.next_offset, limit, bounds)


def _lost(split: PlannedSplit, position: Offset, reason: str) -> PlannedRangeLost:
    return PlannedRangeLost(
        "a planned range cannot be read as planned",
        topic=split.topic,
        partition=split.partition,
        start=position,
        end=split.end,
        leader_epoch=split.leader_epoch,
        reason=reason,
    )
