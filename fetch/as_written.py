"""The batches of a piece that can be returned although a later one is wrong: those that come before it."""

from __future__ import annotations

from dataclasses import replace

from ..log.batch import iter_batches
from ..state.errors import CorruptData
from ..state.offsets import Offset
from .piece import Fetched


def as_written(piece: Fetched, source: str) -> Fetched:
    """Return the leading batches whose CRC is right and that may be shown whole.

    This is for readers that decode nothing: clients get whole batches, and librdkafka checks no CRC. A batch that
    reaches into the broker's own offsets belongs to the same log, and stays.

    Raises CorruptData when no batch is left: the next read begins at the bad one. Branches of the log part at batches,
    so a batch reaches beyond the limit for no other reason.
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
