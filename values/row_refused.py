"""The error for a value that cannot be converted, with its row in a batch."""

from __future__ import annotations

from ..state.errors import TierstateError


class RowRefused(Exception):
    """Raised for the value in ``row`` of a batch. The query's error, of ``kind``, adds the record's place."""

    def __init__(self, row: int, kind: type[TierstateError], reason: str) -> None:
        super().__init__(reason)
        self.row, self.kind = row, kind
