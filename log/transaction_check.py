"""Check a segment's transaction index against its markers: Kafka's index has no checksum, the log has.

The producer snapshot has the transactions that are open where the segment begins; at offset 0 none are. Without it (the
replica began here, or the snapshot is missing or damaged) a transaction that began before the segment by the index is
accepted as far as the markers allow. Offsets below the segment cannot be checked then; everything else is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest

from ..state.errors import CorruptData
from ..state.offsets import Offset
from ..state.segment import AbortedRange
from .producer_snapshot import parse_producer_snapshot
from .transaction_index import ENTRY_BYTES, AbortedTransaction, format_transaction_index, parse_transaction_index
from .transactions import Transactions


@dataclass(frozen=True, slots=True)
class OpenBefore:
    """Open transactions where a segment begins, producer id to first offset. ``complete``: there are no others."""

    transactions: Mapping[int, Offset] = field(default_factory=dict)
    complete: bool = False


def open_before(base: int, snapshot: bytes | None, source: str) -> OpenBefore:
    """Return the open transactions of the producer snapshot at the base offset; not ``complete`` if unreadable."""
    if snapshot is None:
        return OpenBefore(complete=base == 0)
    try:
        producers = parse_producer_snapshot(snapshot, source)
    except CorruptData:
        return OpenBefore()
    opened = [each for each in producers if each.open_transaction_offset >= 0]
    return OpenBefore({each.producer_id: Offset(each.open_transaction_offset) for each in opened}, complete=True)


class TransactionIndexCheck:
    """Add the segment's batches in order, then read the results. ``index``: its bytes, None or empty if missing.

    ``source`` names the index, ``log`` the file of the batches. ``active``: entries may be missing at the end, because
    the broker is about to write them.
    """

    def __init__(
        self, index: bytes | None, base: Offset, before: OpenBefore, source: str, *, log: str, active: bool = False
    ) -> None:
        self.opening_complete, self._source = before.complete, source
        self._index, self._base, self._active = index or b"", base, active
        opened = dict(before.transactions)
        if not before.complete:
            for entry in self._entries():
                if entry.range.first < base:
                    opened.setdefault(entry.range.producer_id, entry.range.first)
        self._transactions = Transactions(log, opened)
        self.add = self._transactions.add

    @property
    def open(self) -> dict[int, Offset]:
        """Return the transactions that are open after the last batch."""
        return dict(self._transactions.open)

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """Return the aborted transactions by the markers, which the index must hold."""
        return [
            AbortedTransaction(AbortedRange(producer, first, last), stable)
            for producer, first, last, stable in self._transactions.aborted
        ]

    def bytes(self) -> bytes:
        """Return the index file that follows from the markers."""
        return format_transaction_index(self.aborted)

    def difference(self) -> str | None:
        """Return how the index differs from the markers, as text, or None if it does not."""
        expected = self.bytes()
        if self._index == expected:
            return None
        try:
            entries = self._parsed()
        except CorruptData as error:
            return str(error)
        for number, (says, must) in enumerate(zip_longest(entries, self.aborted)):
            if (says is None and self._active) or self._agrees(number, says, must):
                continue
            return f"entry {number} says {_words(says)}, the markers say {_words(must)}"
        return None

    def _agrees(self, number: int, says: AbortedTransaction | None, must: AbortedTransaction | None) -> bool:
        if says is None or must is None or says.range != must.range:
            return False
        stable = says.last_stable_offset
        if stable == must.last_stable_offset or (not self.opening_complete and 0 <= stable < self._base):
            return True
        return stable == self._transactions.next_begin.get(number)

    def _parsed(self) -> list[AbortedTransaction]:
        whole = len(self._index) - (len(self._index) % ENTRY_BYTES if self._active else 0)
        return parse_transaction_index(self._index[:whole], self._source)

    def _entries(self) -> list[AbortedTransaction]:
        try:
            return self._parsed()
        except CorruptData:
            return []


def _words(entry: AbortedTransaction | None) -> str:
    if entry is None:
        return "nothing"
    span = entry.range
    return f"producer {span.producer_id} {span.first}..{span.last} (last stable offset {entry.last_stable_offset})"
