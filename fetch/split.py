"""Reading a planned split in any process: exactly its records, remote parts from the store, local ones from a broker.

What was re-written since it was planned (an unclean election) carries a higher epoch in its batches and is refused,
never read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial

from ..log.batch import iter_batches
from ..runtime.clock import Clock
from ..state.errors import InvalidRequest, OffsetOutOfRange, PlannedRangeLost, UnknownTopic
from ..state.ids import TopicIdPartition
from ..state.offsets import Offset, OffsetRange
from ..state.routing import Tier
from ..state.segment import RemoteSegment
from ..storage.object_store import ObjectReader
from ..storage.segment.cache import ChunkCache
from ..storage.segment.encryption import KeyUnwrapper
from .local import LocalTier
from .piece import Fetched, LogicalBounds
from .plan import PlannedPart, PlannedSplit
from .read_ahead import read_ahead
from .reader import PIECE_BYTES, PIECES_AHEAD
from .remote import RemoteTier

EXECUTOR_CACHE_BYTES = 32 * 1024 * 1024
EXECUTOR_PREFETCH_BYTES = 16 * 1024 * 1024

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
