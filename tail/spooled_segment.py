"""Implements `SegmentFiles` on a piece of the spool."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from ..log.batch import HEADER_BYTES
from ..log.quiet_reader import QuietReader
from ..log.transactions import decide
from ..state.epochs import Lineage
from ..state.errors import Fenced, Unavailable
from ..state.offsets import Offset
from ..state.segment import AbortedRange
from .spool import Piece

Later = Callable[[], Iterator[tuple[int, bytes]]]
"""Yields (byte position, complete batches) of what follows the piece in the log."""


class SpooledSegment:
    """``snapshot``: that of the next piece's base, or empty. ``holds``: returns whether the spool still has the piece.

    Raises Fenced if the piece left the spool.
    """

    def __init__(
        self, piece: Piece, lineage: Lineage, snapshot: bytes, later: Later, holds: Callable[[], bool]
    ) -> None:
        self._later, self._holds = later, holds
        self.lineage, self.path, self.log_bytes = lineage, piece.path, piece.size_bytes
        self.offset_index: bytes | None = None
        self.time_index: bytes | None = None
        self.transaction_index, self.before = piece.transaction_index(), piece.before
        self.producer_snapshot = snapshot
        with ExitStack() as opened:
            try:
                file = opened.enter_context(piece.path.open("rb"))
            except FileNotFoundError as error:
                raise Fenced("the segment left the spool meanwhile", file=piece.path) from error
            self.log = QuietReader(file.fileno(), self.log_bytes, str(piece.path), lambda *_: [])
            opened.callback(self.log.close)
            self._opened = opened.pop_all()

    def head(self) -> bytes:
        return self.log.read(min(HEADER_BYTES, self.log_bytes), 0)

    def aborted_later(self, opened: Mapping[int, Offset]) -> tuple[AbortedRange, ...]:
        """Return the aborted transactions. Raises Unavailable while one has no end: it would count as committed."""
        left = dict(opened)
        aborted = tuple(decide(left, self._later(), str(self.path))) if left else ()
        if left:
            raise Unavailable("the leader does not show yet how a transaction ended", file=self.path, open=len(left))
        return aborted

    def confirm(self) -> None:
        if not self._holds():
            raise Fenced("the segment left the spool", file=self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()
