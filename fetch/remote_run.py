"""A reader that continues through the remote tier, and compares its place with the current route before every piece.

Reading ahead only makes bytes arrive sooner: a piece is returned only if it begins where the current route says.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..state.offsets import Offset
from ..state.routing import ReadRemote
from .remote import RemotePiece
from .remote_parts import Part, RemoteReads, read_parts


class RemoteRun:
    """One run. Memory: see `remote_parts.py`. Not thread-safe. Close it: it has requests in flight."""

    def __init__(self, parts: Sequence[Part], reads: RemoteReads) -> None:
        self._parts = parts
        self._pieces = read_parts(parts, reads)

    def take(self, where: ReadRemote) -> RemotePiece | None:
        """Return the next piece if it begins at ``where``. None: it begins elsewhere, or the run is over.

        Raises ObjectNotFound, CorruptData, Unavailable.
        """
        piece = next(self._pieces, None)
        if piece is None or piece.offset != where.offsets.start or self._parts[piece.part][0] != where.segment:
            return None
        next_offset = Offset(min(piece.next_offset, where.offsets.end + 1))
        return RemotePiece(piece.data, piece.aborted, next_offset, position=piece.position)

    def close(self) -> None:
        """End the run, its threads and its requests. Idempotent."""
        self._pieces.close()
