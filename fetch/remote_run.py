"""A reader who goes on and on through the remote tier, and is told by the route at every piece where it is.

What is read ahead is only how bytes come here sooner: a piece is handed out if it is what the route says now.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..state.offsets import Offset
from ..state.routing import ReadRemote
from .remote import RemotePiece
from .remote_parts import Part, RemoteReads, read_parts


class RemoteRun:
    """Memory as `remote_parts.py` says. Not thread-safe. Close it: it has requests under way."""

    def __init__(self, parts: Sequence[Part], reads: RemoteReads) -> None:
        self._parts = parts
        self._pieces = read_parts(parts, reads)

    def take(self, where: ReadRemote) -> RemotePiece | None:
        """The next piece, if it begins where the route says; None: this run does not come by there, or is over.

        Raises ObjectNotFound, CorruptData, Unavailable.
        """
        piece = next(self._pieces, None)
        if piece is None or piece.offset != where.offsets.start or self._parts[piece.part][0] != where.segment:
            return None
        next_offset = Offset(min(piece.next_offset, where.offsets.end + 1))
        return RemotePiece(piece.data, piece.aborted, next_offset, position=piece.position)

    def close(self) -> None:
        """No thread and no request is left. Idempotent."""
        self._pieces.close()
