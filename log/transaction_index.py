"""The files about a segment's transactions, and a check of one by the other.

``.txnindex`` has a segment's aborted transactions, 34 bytes each (Kafka's ``AbortedTxn``, version 0). ``.snapshot`` has
the broker's state of each idempotent producer at an offset (``ProducerSnapshot.json`` v1).

An index is checked against the segment's markers: Kafka's index has no checksum, the log has. The producer snapshot
holds the transactions that are open at the segment's base offset; at offset 0 there are none. The snapshot may be
damaged or missing, for instance because the replica began here. Then transactions that began before the segment are
taken from the index, if the markers agree. Offsets below the segment are not checked then.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest

import google_crc32c

from ..state.errors import CorruptData
from ..state.offsets import Offset
from ..state.segment import AbortedRange
from .transactions import AbortedTransaction, Transactions

_SNAPSHOT_HEAD = struct.Struct(">hIi")
_PRODUCER = struct.Struct(">qhiqiqiq")


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """The state of a producer. ``open_transaction_offset`` is -1 if no transaction is open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    open_transaction_offset: int


def parse_producer_snapshot(data: bytes, source: str) -> list[ProducerEntry]:
    """Return the producers. Raises CorruptData for a version other than 1, a wrong CRC or a wrong length."""
    if len(data) < _SNAPSHOT_HEAD.size:
        raise CorruptData("producer snapshot is cut off", file=source, bytes=len(data))
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != 1:
        raise CorruptData("producer snapshot of an unknown version", file=source, version=version)
    if google_crc32c.value(data[6:]) != crc:
        raise CorruptData("producer snapshot CRC does not match", file=source)
    if len(data) != _SNAPSHOT_HEAD.size + count * _PRODUCER.size:
        raise CorruptData("producer snapshot has another length than it says", file=source, producers=count)
    return [ProducerEntry(*fields) for fields in _PRODUCER.iter_unpack(data[_SNAPSHOT_HEAD.size :])]


def format_open_transactions(opened: Mapping[int, Offset]) -> bytes:
    """Return a snapshot of only those producers that have a transaction open: producer id to its first offset.

    No batch of a producer is known besides that: sequence and offset are -1, as Kafka has them for an empty entry.
    """
    entries = b"".join(_PRODUCER.pack(producer, -1, -1, -1, 0, -1, -1, first) for producer, first in opened.items())
    body = _SNAPSHOT_HEAD.pack(1, 0, len(opened))[6:] + entries
    return _SNAPSHOT_HEAD.pack(1, google_crc32c.value(body), len(opened))[:6] + body


ENTRY = struct.Struct(">hqqqq")
"""Version, producer id, first offset, offset of the marker, last stable offset."""


def parse_transaction_index(data: bytes, source: str) -> list[AbortedTransaction]:
    """Return the entries in file order. Raises CorruptData."""
    if len(data) % ENTRY.size:
        raise CorruptData("transaction index is cut off", file=source, bytes=len(data))
    entries = []
    for number, (version, producer, first, last, stable) in enumerate(ENTRY.iter_unpack(data)):
        if version != 0:
            raise CorruptData(
                "transaction index entry of an unknown version",
                file=source,
                position=number * ENTRY.size,
                version=version,
            )
        if first < 0 or last < first:
            raise CorruptData("transaction index entry contradicts itself", file=source, position=number * ENTRY.size)
        entries.append(AbortedTransaction(AbortedRange(producer, Offset(first), Offset(last)), Offset(stable)))
    return entries


def format_transaction_index(entries: list[AbortedTransaction]) -> bytes:
    """Return the content of the file."""
    return b"".join(
        ENTRY.pack(0, e.range.producer_id, e.range.first, e.range.last, e.last_stable_offset) for e in entries
    )


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
            with suppress(CorruptData):
                for entry in self._parsed():
                    if entry.range.first < base:
                        opened.setdefault(entry.range.producer_id, entry.range.first)
        self._transactions = Transactions(log, opened)
        self.add = self._transactions.add
        self.aborted = self._transactions.aborted
        """The transactions that the markers abort. The index must hold exactly these."""

    @property
    def open(self) -> dict[int, Offset]:
        """Return the transactions that are open after the last batch: producer id to first offset."""
        return dict(self._transactions.open)

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
        whole = len(self._index) - (len(self._index) % ENTRY.size if self._active else 0)
        return parse_transaction_index(self._index[:whole], self._source)


def _words(entry: AbortedTransaction | None) -> str:
    if entry is None:
        return "nothing"
    span = entry.range
    return f"producer {span.producer_id} {span.first}..{span.last} (last stable offset {entry.last_stable_offset})"
