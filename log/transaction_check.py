"""A segment's transaction index against its markers: Kafka's file is under no checksum, the log is.

What is open where the segment begins is known from its producer snapshot; nothing is at offset 0. Elsewhere (a replica
that began here, a snapshot that is missing or damaged) the index is asked: a transaction that it says began before the
segment is believed as far as the markers allow. Offsets below the segment cannot be checked then, all else is.
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
    """Producer id to first offset of what is open where a segment begins. ``known``: there is nothing else."""

    transactions: Mapping[int, Offset] = field(default_factory=dict)
    known: bool = False


def open_before(base: int, snapshot: bytes | None, source: str) -> OpenBefore:
    """By the producer snapshot of the segment's base offset; unknown where that cannot be read."""
    if snapshot is None:
        return OpenBefore(known=base == 0)
    try:
        producers = parse_producer_snapshot(snapshot, source)
    except CorruptData:
        return OpenBefore()
    opened = [each for each in producers if each.open_transaction_offset >= 0]
    return OpenBefore({each.producer_id: Offset(each.open_transaction_offset) for each in opened}, known=True)


class TransactionIndexCheck:
    """Push the segment's batches in order, then ask. ``index``: the file's bytes, None or empty where there is none.

    ``source`` names it, ``log`` is the file of the batches. ``active``: entries may be missing at the end, which the
    broker is about to write.
    """

    def __init__(
        self, index: bytes | None, base: Offset, before: OpenBefore, source: str, *, log: str, active: bool = False
    ) -> None:
        self.known, self._source = before.known, source
        self._index, self._base, self._active = index or b"", base, active
        opened = dict(before.transactions)
        if not before.known:
            for entry in self._entries():
                if entry.range.first < base:
                    opened.setdefault(entry.range.producer_id, entry.range.first)
        self._transactions = Transactions(log, opened)
        self.add = self._transactions.add

    @property
    def open(self) -> dict[int, Offset]:
        """What is open behind the last batch."""
        return dict(self._transactions.open)

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """As the markers have it: what the index must hold."""
        return [
            AbortedTransaction(AbortedRange(producer, first, last), stable)
            for producer, first, last, stable in self._transactions.aborted
        ]

    def bytes(self) -> bytes:
        """The index that the markers make."""
        return format_transaction_index(self.aborted)

    def difference(self) -> str | None:
        """What the index says otherwise, in words; None when nothing."""
        wanted = self.bytes()
        if self._index == wanted:
            return None
        try:
            found = self._parsed()
        except CorruptData as error:
            return str(error)
        for number, (says, must) in enumerate(zip_longest(found, self.aborted)):
            if (says is None and self._active) or self._agrees(number, says, must):
                continue
            return f"entry {number} says {_words(says)}, the markers say {_words(must)}"
        return None

    def _agrees(self, number: int, says: AbortedTransaction | None, must: AbortedTransaction | None) -> bool:
        if says is None or must is None or says.range != must.range:
            return False
        stable = says.last_stable_offset
        if stable == must.last_stable_offset or (not self.known and 0 <= stable < self._base):
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
    said = entry.range
    return f"producer {said.producer_id} {said.first}..{said.last} (last stable offset {entry.last_stable_offset})"
