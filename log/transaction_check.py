"""Check a segment's transaction index against its markers: Kafka's index has no checksum, the log has.

The producer snapshot holds the transactions that are open at the segment's base offset; at offset 0 there are none. The
snapshot may be damaged or missing, for instance because the replica began here. Then transactions that began before the
segment are taken from the index, if the markers agree. Offsets below the segment are not checked then.
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
    """The transactions open at a segment's base offset: producer id to first offset. ``complete``: all are known."""

    transactions: Mapping[int, Offset] = field(default_factory=dict)
    complete: bool = False


def open_before(base: int, snapshot: bytes | None, source: str) -> OpenBefore:
    """Return the open transactions of the producer snapshot at offset ``base``. They are not ``complete`` if it is
    unreadable, or if it is missing at an offset other than 0."""
    if snapshot is None:
        return OpenBefore(complete=base == 0)
    try:
        producers = parse_producer_snapshot(snapshot, source)
    except CorruptData:
        return OpenBefore()
    opened = [each for each in producers if each.open_transaction_offset >= 0]
    return OpenBefore({each.producer_id: Offset(each.open_transaction_offset) for each in opened}, complete=True)


class TransactionIndexCheck:
    """Compares a transaction index with the markers. Call `add` for the segment's batches in order, then read results.

    ``index``: the index file's bytes, None or empty if missing. ``source`` names the index, ``log`` the batches' file.
    ``active``: entries may be missing at the end, because the broker has not written them yet.
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
        """Return the transactions that are open after the last batch: producer id to first offset."""
        return dict(self._transactions.open)

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """Return the transactions that the markers abort. The index must hold exactly these."""
        return [
            AbortedTransaction(AbortedRange(producer, first, last), stable)
            for producer, first, last, stable in self._transactions.aborted
        ]

    def bytes(self) -> bytes:
        """Return the content that the index file must have according to the markers."""
        return format_transaction_index(self.aborted)

    def difference(self) -> str | None:
        """Return a text with the first difference between the index and the markers, or None if they agree."""
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
