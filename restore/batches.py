"""The batches of a source range, as a producer may send them: committed records only, nothing twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..fetch.piece import Fetched
from ..log.batch import iter_batches
from ..log.isolation import AbortFilter
from ..log.produced_batch import is_sendable, rewritten


@dataclass(frozen=True, slots=True)
class Sendable:
    """A batch. ``offsets``: the source offsets of its records. ``as_stored``: only its header will be changed."""

    data: bytes | memoryview
    offsets: Sequence[int]
    as_stored: bool


def sendables(pieces: Iterable[Fetched], topic: str, partition: int) -> Iterator[Sendable]:
    """Yield the batches with the records of these pieces, in order. The data of a batch is valid until the next one.

    Each batch's CRC-32C is checked, because it is computed again. Raises CorruptData, and the errors of ``pieces``.
    """
    for piece in pieces:
        hidden, source = AbortFilter(piece.aborted), piece.source(topic, partition)
        view = memoryview(piece.data)
        for batch in iter_batches(view, source=source, position=piece.position):
            outside = batch.last_offset < piece.offset or batch.base_offset >= piece.limit
            if outside or batch.is_control or not batch.record_count or hidden.hides(batch):
                continue
            at = batch.position - piece.position
            data = view[at : at + batch.size_bytes]
            if is_sendable(batch) and batch.base_offset >= piece.offset and batch.last_offset < piece.limit:
                yield Sendable(data, range(batch.base_offset, batch.last_offset + 1), True)
                continue
            new, offsets = rewritten(data, batch, piece.offset, piece.limit, source=source)
            if offsets:
                yield Sendable(new, offsets, False)
