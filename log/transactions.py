"""Follow transactions through batches, as Kafka's broker does while it appends.

Kafka's rules (`ProducerAppendInfo`, `ProducerStateManager`, `LogSegment` of 3.9 and 4.3):

- a transactional batch of a producer that has no transaction open begins one, at the batch's base offset;
- a marker ends the transaction. Without an open transaction, a marker adds no index entry (`appendEndTxnMarker`);
- an abort marker adds an entry to the segment's transaction index: producer, first offset, offset of the marker, and
  the *last stable offset*. That is the first offset of the oldest transaction that another producer still has open. If
  there is none, it is the offset after the marker (`ProducerStateManager.lastStableOffset`). A replica that appends
  several batches at once begins all their transactions before it ends the first one (`UnifiedLog.append`: `update`
  before `completeTxn`). Then that offset may also be where another producer's next transaction begins;
- a marker is a control batch with one record. The record's key is ``version int16 ‖ type int16`` (`ControlRecordType`);
- the producer snapshot at a segment's base offset holds the transactions that are open there (`UnifiedLog.roll`).

Markers and batches have a CRC, a transaction index has none. Memory: some 300 bytes for each transaction that is open
at the same time, and for each aborted transaction of one segment.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..state.errors import CorruptData
from ..state.offsets import Offset
from ..state.segment import AbortedRange
from .batch import CONTROL, HEADER_BYTES, TRANSACTIONAL, BatchHeader, iter_batches

ABORT, COMMIT = 0, 1
"""Types from 2 on do not belong to transactions."""


def marker_type(batch: BatchHeader, data: bytes | memoryview, position: int = 0, *, source: str) -> int | None:
    """Return the type in a control batch's key, None if a cleaner removed the record. ``data`` begins at ``position``.

    A record is varint length, int8 attributes, varint timestamp delta, varint offset delta, varint key length, key, …
    Raises CorruptData naming ``source`` for a record that is cut off.
    """
    if not batch.record_count:
        return None
    at = batch.position - position + HEADER_BYTES
    stop = batch.position - position + batch.size_bytes
    for skipped in (0, 1, 0, 0):  # length; attributes and timestamp; offset; key length
        at += skipped
        while at < stop and data[at] & 0x80:
            at += 1
        at += 1
    if at + 4 > stop:
        raise CorruptData("control record is cut off", file=source, offset=batch.base_offset, position=batch.position)
    return int.from_bytes(data[at + 2 : at + 4], "big", signed=True)


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """``range`` ends with the abort marker. ``last_stable_offset`` is the log's when that marker was appended."""

    range: AbortedRange
    last_stable_offset: Offset


class Transactions:
    """The transactions in batches of ``source``, which are added in order. ``open`` maps a producer id to the first
    offset of the producer's open transaction, oldest first. ``aborted``: in the order of the markers.
    """

    def __init__(self, source: str, opened: Mapping[int, Offset] | None = None) -> None:
        self._source = source
        self.open = OrderedDict(sorted((opened or {}).items(), key=lambda each: each[1]))
        self.aborted: list[AbortedTransaction] = []
        self.next_begin: dict[int, Offset] = {}
        """Maps the index in ``aborted`` of a transaction that was the only open one to the first offset of the next
        transaction of another producer."""
        self._alone: dict[int, list[int]] = {}

    def add(self, batch: BatchHeader, data: bytes | memoryview, position: int = 0) -> None:
        """Add a batch within ``data``, which begins at ``position``. Raises CorruptData for a broken marker."""
        batch_kind, producer = batch.attributes & (TRANSACTIONAL | CONTROL), batch.producer_id
        if batch_kind == TRANSACTIONAL:
            if producer not in self.open:
                self.open[producer] = Offset(batch.base_offset)
                if self._alone:
                    self._begins(producer, Offset(batch.base_offset))
            return
        if not batch_kind or producer not in self.open:
            return
        kind = marker_type(batch, data, position, source=self._source)
        if kind not in (ABORT, COMMIT):
            return
        first, last = self.open.pop(producer), Offset(batch.base_offset)
        if kind == ABORT:
            if not self.open:
                self._alone.setdefault(producer, []).append(len(self.aborted))
            stable = next(iter(self.open.values()), Offset(last + 1))
            self.aborted.append(AbortedTransaction(AbortedRange(producer, first, last), stable))

    def _begins(self, producer: int, first: Offset) -> None:
        for other in [each for each in self._alone if each != producer]:
            self.next_begin.update(dict.fromkeys(self._alone.pop(other), first))


def decide(opened: dict[int, Offset], pieces: Iterable[tuple[int, bytes]], source: str) -> Iterator[AbortedRange]:
    """Remove the transactions from ``opened`` whose markers are in the pieces (byte position, complete batches). Yield
    the aborted ones. Reading stops once ``opened`` is empty. Raises CorruptData.
    """
    for position, data in pieces:
        for batch in iter_batches(data, source=source, position=position):
            if not batch.is_control or batch.producer_id not in opened:
                continue
            kind = marker_type(batch, data, position, source=source)
            if kind not in (ABORT, COMMIT):
                continue
            first = opened.pop(batch.producer_id)
            if kind == ABORT:
                yield AbortedRange(batch.producer_id, first, Offset(batch.base_offset))
            if not opened:
                return
