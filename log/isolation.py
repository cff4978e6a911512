"""Decide which batches read_committed hides. Aborted ranges are (producer, first, last), both ends included.

A range applies only to transactional batches of its producer, because transactions of several producers overlap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ..state.errors import CorruptData
from ..state.offsets import Offset
from ..state.segment import AbortedRange
from .batch import CONTROL, TRANSACTIONAL, BatchHeader
from .transactions import ABORT, COMMIT, marker_type


class AbortFilter:
    """Hides complete batches, because a batch belongs to one transaction. False as a bool if nothing is hidden."""

    def __init__(self, aborted: Sequence[AbortedRange]) -> None:
        self._by_producer: dict[int, tuple[list[int], list[int]]] = {}
        for aborted_range in sorted(aborted, key=lambda r: r.first):
            firsts, lasts = self._by_producer.setdefault(aborted_range.producer_id, ([], []))
            if lasts and aborted_range.first <= lasts[-1]:  # sources may disagree on the first offset of an abort
                lasts[-1] = max(lasts[-1], aborted_range.last)
            else:
                firsts.append(aborted_range.first)
                lasts.append(aborted_range.last)

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def covers(self, producer_id: int, offset: int) -> bool:
        """Return whether a transactional record of this producer at this offset is aborted."""
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
    """Checks that the hidden batches agree with the markers. Batches are added in order. All batches of an aborted
    transaction must be hidden, and no batch of a committed one. Only added batches are checked, and only transactions
    whose marker is added. Memory: one entry for each producer.
    """

    def __init__(self, hidden: AbortFilter, source: str) -> None:
        self._hidden, self._source = hidden, source
        self.shown: dict[int, Offset] = {}
        """Producer id to the offset of its first shown batch since its last marker. ``covered``: first hidden batch."""
        self.covered: dict[int, Offset] = {}
        self.first_markers: dict[int, tuple[int, Offset]] = {}
        """Producer id to the type and the offset of the producer's first marker."""

    def add(self, batch: BatchHeader, data: bytes | memoryview, position: int = 0) -> None:
        """Check a batch within ``data``, which begins at byte ``position``. Raises CorruptData for a contradiction."""
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
    """Return the reason why a transaction with these shown and hidden batches cannot have this marker, or None."""
    if kind == ABORT and shown is not None:
        return "records of an aborted transaction would be shown"
    if kind == COMMIT and covered is not None:
        return "records of a committed transaction would be hidden"
    return None
