"""The batches of a piece that can be returned although a later batch is wrong: all batches before the wrong one."""

from __future__ import annotations

from dataclasses import replace

from ..log.batch import iter_batches
from ..state.errors import CorruptData
from ..state.offsets import Offset
from .piece import Fetched


def as_written(piece: Fetched, source: str) -> Fetched:
    """Return the leading batches whose CRC is right and that do not exceed the limit of their part of the log.

    This is for readers that decode nothing: clients get complete batches, and librdkafka checks no CRC. A batch that
    exceeds a limit at the broker's local start belongs to the same log, so it is kept. Raises CorruptData if no batch
    remains, as in a read that begins at a wrong one. Branches of the log diverge between batches, so only a wrong batch
    exceeds another limit.
    """
    limit = piece.limit if piece.limit < piece.bounds.local_start else None
    stop, reached, wrong = 0, piece.offset, None
    try:
        for batch in iter_batches(piece.data, source=source, position=piece.position):
            if limit is not None and batch.last_offset >= limit:
                wrong = CorruptData(
                    "a batch reaches beyond where its log ends", file=source, offset=piece.offset, limit=limit
                )
                break
            stop = batch.position + batch.size_bytes - piece.position
            reached = Offset(batch.last_offset + 1)
    except CorruptData as error:
        wrong = error
    if wrong is None:
        return piece
    if not stop:
        raise wrong
    return replace(piece, data=piece.data[:stop], next_offset=min(reached, piece.next_offset))


def below(piece: Fetched, offset: Offset) -> Fetched:
    """Return the batches that begin below the offset. The records in them are not checked."""
    stop = 0
    for batch in iter_batches(piece.data, source="", verify_crc=False, partial_tail_ok=True):
        if batch.base_offset >= offset:
            break
        stop = batch.position + batch.size_bytes
    return replace(piece, data=piece.data[:stop], limit=offset)
