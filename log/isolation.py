"""What read_committed hides. Aborted ranges are (producer, first, last), both ends included.

They apply only to transactional batches of that producer. Producers overlap, and one producer's ranges never do.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..state.offsets import Offset
from ..state.segment import AbortedRange
from .batch import BatchHeader


class AbortFilter:
    """Hides whole batches: a batch is of one producer and lies in one transaction."""

    def __init__(self, aborted: Sequence[AbortedRange]) -> None:
        self._by_producer: dict[int, list[AbortedRange]] = {}
        for each in sorted(aborted, key=lambda r: r.first):
            self._by_producer.setdefault(each.producer_id, []).append(each)

    def hides(self, batch: BatchHeader) -> bool:
        if not batch.is_transactional or batch.is_control:
            return False
        ranges = self._by_producer.get(batch.producer_id)
        if not ranges:
            return False
        at = bisect_right(ranges, batch.base_offset, key=lambda r: r.first)
        return at > 0 and batch.base_offset <= ranges[at - 1].last


@dataclass
class OpenTransactions:
    """Push batches in order; `first` is where undecided data begins (a last stable offset of our own making)."""

    _open: dict[int, Offset] = field(default_factory=dict)

    def add(self, batch: BatchHeader) -> None:
        if not batch.is_transactional:
            return
        if batch.is_control:
            self._open.pop(batch.producer_id, None)
        else:
            self._open.setdefault(batch.producer_id, Offset(batch.base_offset))

    @classmethod
    def of(cls, batches: Iterable[BatchHeader]) -> OpenTransactions:
        found = cls()
        for batch in batches:
            found.add(batch)
        return found

    @property
    def producers(self) -> dict[int, Offset]:
        """Producer id to the first offset of its transaction that is still open."""
        return dict(self._open)

    @property
    def first(self) -> Offset | None:
        return min(self._open.values(), default=None)
