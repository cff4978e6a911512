"""A value that cannot become what was asked for, by its row in a batch."""

from __future__ import annotations

from ..state.errors import TierstateError


class RowRefused(Exception):
    """Of a batch, ``row``: what a query fails with says the place of the record and the reason."""

    def __init__(self, row: int, kind: type[TierstateError], reason: str) -> None:
        super().__init__(reason)
        self.row, self.kind = row, kind
