"""Read a planned split in any process: exactly its records, remote parts from the store, local ones from a broker.

After an unclean election, other records may have replaced the planned ones. Their batches have a higher leader epoch,
so they are refused, never read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Protocol

from ..broker.answers import FetchSpec
from ..log.batch import iter_batches
from ..state.errors import InvalidRequest, OffsetOutOfRange, UnknownTopic
from ..state.offsets import Offset, OffsetRange
from ..state.routing import ReadRemote, Tier
from ..storage.object_store import ObjectReads
from ..storage.segment.encryption import KeyUnwrapper
from ..storage.segment.log_chunks import WINDOW_BYTES
from .piece import PIECE_BYTES, PIECES_AHEAD, Fetched, LogicalBounds, StoredBatches, naming
from .planned_split import PlannedPart, PlannedSplit, range_lost
from .read_ahead import read_ahead
from .remote_parts import RemoteReads, read_parts


class LocalReads(Protocol):
    """The local tier for splits: `local.LocalTier`, which passes the full request to Kafka, or a gateway's."""

    def fetch(self, spec: FetchSpec) -> StoredBatches: ...


Reroute = Callable[[PlannedSplit], Iterable[PlannedSplit]]
"""Called with the rest of a local split that the broker no longer has. Returns the splits to read instead."""


def read_split(
    split: PlannedSplit,
    store: ObjectReads,
    local: LocalReads | None,
    *,
    keys: KeyUnwrapper | None = None,
    piece_bytes: int = WINDOW_BYTES,
    reroute: Reroute | None = None,
) -> Iterator[Fetched]:
    """Yield exactly the planned records, in an executor. Memory for remote parts: as in `remote_parts.py`; for local
    parts: as for a scan (`reader.py`). A piece that is still held keeps its memory.

    ``piece_bytes``: the most bytes of a request; for a local part never more than `PIECE_BYTES`.
    Raises PlannedRangeLost if the range can no longer be read as planned, and ObjectNotFound if a planned segment
    expired.
    """
    reads = RemoteReads(store, keys, split.isolation, piece_bytes)
    return _Split(split, reads, local, min(piece_bytes, PIECE_BYTES)).pieces(reroute)


@dataclass(frozen=True, slots=True)
class _Split:
    split: PlannedSplit
    reads: RemoteReads
    local: LocalReads | None
    piece_bytes: int

    def pieces(self, reroute: Reroute | None) -> Generator[Fetched, None, None]:
        for remote, parts in groupby(self.split.parts, lambda part: part.segment is not None):
            if remote:
                yield from self._remote(list(parts))
            else:
                for part in parts:
                    yield from self._local(part.offsets, reroute)

    def _remote(self, parts: list[PlannedPart]) -> Iterator[Fetched]:
        remote_parts = [(part.segment, part.offsets) for part in parts if part.segment is not None]
        place = self.split.topic, self.split.partition
        with naming(*place), closing(read_parts(remote_parts, self.reads)) as pieces:
            for piece in pieces:
                segment, offsets = remote_parts[piece.part]
                yield Fetched(
                    data=piece.data,
                    tier=Tier.REMOTE,
                    aborted=piece.aborted,
                    offset=piece.offset,
                    next_offset=piece.next_offset,
                    limit=Offset(offsets.end + 1),
                    bounds=self._bounds,
                    read=ReadRemote(segment, offsets),
                    position=piece.position,
                )
                del piece  # its memory is reused for the next one

    def _local(self, offsets: OffsetRange, reroute: Reroute | None) -> Iterator[Fetched]:
        position, limit = offsets.start, Offset(offsets.end + 1)
        with closing(read_ahead(self._local_pieces(offsets), PIECES_AHEAD)) as pieces:
            try:
                for piece in pieces:
                    yield piece
                    position = piece.next_offset
                return
            except OffsetOutOfRange as error:
                if reroute is None:
                    raise range_lost(self.split, position, str(error)) from error
        for again in reroute(replace(self.split, start=position, end=limit, parts=())):
            yield from replace(self, split=again).pieces(None)

    def _local_pieces(self, offsets: OffsetRange) -> Iterator[Fetched]:
        position, limit = offsets.start, Offset(offsets.end + 1)
        while position < limit:
            piece = self._local_piece(position, limit)
            yield piece
            position = piece.next_offset

    def _local_piece(self, position: Offset, limit: Offset) -> Fetched:
        split = self.split
        if self.local is None:
            raise InvalidRequest("a local split needs a broker", topic=split.topic, partition=split.partition)
        place, most = (split.topic, split.partition, position), self.piece_bytes
        spec = FetchSpec(*place, most, split.isolation, topic_id=split.topic_id)
        try:
            read = self.local.fetch(spec)
        except UnknownTopic as error:
            raise range_lost(split, position, str(error)) from error
        if not read.data:
            raise range_lost(split, position, "the log ends here now")
        if split.leader_epoch is not None:
            source = f"{split.topic}-{split.partition}@{position}"
            for header in iter_batches(read.data, source=source, verify_crc=False):
                if header.base_offset < limit and header.partition_leader_epoch > split.leader_epoch:
                    raise range_lost(
                        split, position, f"written again under leader epoch {header.partition_leader_epoch}"
                    )
        return Fetched(read.data, Tier.LOCAL, read.aborted, position, read.next_offset, limit, self._bounds)

    @property
    def _bounds(self) -> LogicalBounds:
        return LogicalBounds(self.split.start, self.split.start, None, self.split.end, self.split.end)
