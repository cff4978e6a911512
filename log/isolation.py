"""What read_committed hides. Aborted ranges are (producer, first, last), both ends included.

They apply only to transactional batches of that producer: producers overlap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ..state.errors import CorruptData
from ..state.offsets import Offset
from ..state.segment import AbortedRange
from .batch import CONTROL, TRANSACTIONAL, BatchHeader
from .markers import ABORT, COMMIT, marker_type


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


class MarkerCheck:
    """Whether the markers agree with what is hidden: push batches in order. All of an aborted transaction must be
    hidden and nothing of a committed one, as far as the batches reach back; whose marker is not among them may be
    either. Memory: the producers among them.
    """

    def __init__(self, hidden: AbortFilter, source: str) -> None:
        self._hidden, self._source = hidden, source
        self.shown: dict[int, Offset] = {}
        """Producer id to its first record that is shown, of those since its last marker; ``covered``: not shown."""
        self.covered: dict[int, Offset] = {}
        self.first_markers: dict[int, tuple[int, Offset]] = {}
        """Producer id to type and offset."""

    def add(self, batch: BatchHeader, data: bytes | memoryview, position: int = 0) -> None:
        """``data`` begins at ``position`` and holds the batch. Raises CorruptData naming producer and offsets."""
        if not batch.attributes & (TRANSACTIONAL | CONTROL) or not batch.record_count:
            return
        producer = batch.producer_id
        if not batch.is_control:
            kept = self.covered if self._hidden.covers(producer, batch.base_offset) else self.shown
            kept.setdefault(producer, Offset(batch.base_offset))
            return
        kind = marker_type(batch, data, position, source=self._source)
        if kind not in (ABORT, COMMIT):
            return
        marker = Offset(batch.base_offset)
        self.first_markers.setdefault(producer, (kind, marker))
        shown, covered = self.shown.pop(producer, None), self.covered.pop(producer, None)
        wrong = contradiction(kind, shown, covered)
        if wrong is not None:
            raise CorruptData(
                wrong, file=self._source, producer=producer, offset=shown if kind == ABORT else covered, marker=marker
            )


def contradiction(kind: int, shown: Offset | None, covered: Offset | None) -> str | None:
    """What is wrong where a transaction has these records and ends with this type of marker; None: nothing."""
    if kind == ABORT and shown is not None:
        return "records of an aborted transaction would be shown"
    if kind == COMMIT and covered is not None:
        return "records of a committed transaction would be hidden"
    return None
