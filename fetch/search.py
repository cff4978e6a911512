"""What is looked for among records, and how far that is: the same through both tiers and through a gateway."""

from __future__ import annotations

from collections.abc import Callable

from ..state.offsets import Offset


class Search:
    """``key``: exactly this key. ``contains``: these bytes in the key, the value, or a header's name or value.

    ``told``: called whenever it got on, by the thread that reads.
    """

    def __init__(self, key: bytes | None, contains: bytes | None, told: Callable[[Search], None]) -> None:
        self.key, self.contains = key, contains
        self.records = self.bytes = 0
        """Looked through, of all partitions together; bytes unpacked."""
        self.reached = Offset(0)
        """In the partition that is being looked through: where it goes on."""
        self._told = told

    def looked(self, records: int, size: int) -> None:
        self.records += records
        self.bytes += size

    def reach(self, offset: int) -> None:
        self.reached = Offset(offset)
        self._told(self)
