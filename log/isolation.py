"""What read_committed hides. Aborted ranges are (producer, first, last), both ends included.

They apply only to transactional batches of that producer: producers overlap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..state.offsets import Offset
from ..state.segment import AbortedRange
from .batch import BatchHeader


class AbortFilter:
    """Hides whole batches: a batch is of one producer and lies in one transaction. False when it hides nothing."""

    def __init__(self, aborted: Sequence[AbortedRange]) -> None:
        self._by_producer: dict[int, tuple[list[int], list[int]]] = {}
        for each in sorted(aborted, key=lambda r: r.first):
            firsts, lasts = self._by_producer.setdefault(each.producer_id, ([], []))
            if lasts and each.first <= lasts[-1]:  # one abort, told by two sources with other beginnings
                lasts[-1] = max(lasts[-1], each.last)
            else:
                firsts.append(each.first)
                lasts.append(each.last)

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def covers(self, producer_id: int, offset: int) -> bool:
        """Whether a transactional record of this producer at this offset is aborted."""
        if producer_id not in self._by_producer:
            return False
        firsts, lasts = self._by_producer[producer_id]
        at = bisect_right(firsts, offset)
        return at > 0 and offset <= lasts[at - 1]

    def hides(self, batch: BatchHeader) -> bool:
        if not batch.is_transactional or batch.is_control:
            return False
        return self.covers(batch.producer_id, batch.base_offset)


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
