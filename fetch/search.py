"""The terms and the progress of a search: the same through both tiers and through a gateway."""

from __future__ import annotations

from collections.abc import Callable

from ..state.offsets import Offset


class Search:
    """``key``: exactly this key. ``contains``: these bytes in the key, the value, or a header's name or value.

    ``report``: called at each progress, by the thread that reads.
    """

    def __init__(self, key: bytes | None, contains: bytes | None, report: Callable[[Search], None]) -> None:
        self.key, self.contains = key, contains
        self.records = self.bytes = 0
        """Searched so far, in all partitions together; ``bytes`` are uncompressed."""
        self.reached = Offset(0)
        """The offset at which the search continues, in the partition that is being searched."""
        self._report = report

    def looked(self, records: int, size: int) -> None:
        self.records += records
        self.bytes += size

    def reach(self, offset: int) -> None:
        self.reached = Offset(offset)
        self._report(self)
