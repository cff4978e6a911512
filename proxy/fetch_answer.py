"""Read a Fetch answer entry by entry, each up to the length of its records. Records are not read here.

    header | throttle | error | session | [topic, [entry: index, error, bounds, aborted, replica, records], tags], tags

An entry's error code and bounds have fixed positions, so an entry without records is changed in place. An entry to
which remote records are added is built again (`fill_entry`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from ..broker.wire import Frame, Malformed, length_of
from ..fetch.piece import Fetched, LogicalBounds
from .apis import APIS, Key
from .fetch_request import TOPIC_IDS, Place, hide_addresses, read_topic_id
from .peer import MOST, Peer, begun

WITH_ADDRESSES = 16
"""The first version whose tagged fields at the end may have addresses of brokers."""
_LEAD = struct.Struct(">ihqqq")
"""Partition, error code, high watermark, last stable offset, log start offset."""
_NUMBER_AND_ERROR = struct.Struct(">ih")
_INT64 = struct.Struct(">q")
_ABORTED = struct.Struct(">qq")
_INT32 = struct.Struct(">i")
NO_REPLICA = -1
UNKNOWN = -1


def _lead(version: int, partition: int, error: int, bounds: LogicalBounds | None) -> bytes:
    high = last = start = UNKNOWN
    if bounds is not None:
        high, last = bounds.high_watermark, bounds.last_stable_offset
        start = UNKNOWN if bounds.log_start is None else bounds.log_start
    lead = _LEAD.pack(partition, error, high, last, start)
    return lead if version >= 5 else lead[:-8]


@dataclass(slots=True)
class AnsweredPartition:
    """One entry of a Fetch answer of ``version``. ``head``: all bytes after the previous entry, up to the records.

    ``lead``: the position in ``head`` at which the entry begins. ``size``: the bytes of records that follow ``head``.
    ``log_start``: the broker's, or `UNKNOWN`.
    """

    topic: str
    partition: int
    error: int
    head: bytearray
    lead: int
    size: int
    log_start: int
    version: int

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    def set_log_start(self, log_start: int) -> None:
        """Replace the log start offset, in versions that have one."""
        if self.version >= 5:
            _INT64.pack_into(self.head, self.lead + _LEAD.size - _INT64.size, log_start)

    def set_result(self, error: int, bounds: LogicalBounds | None) -> None:
        """Replace the error code and the bounds (None: unknown) in the entry. The entry must have no records."""
        lead = _lead(self.version, self.partition, error, bounds)
        self.head[self.lead : self.lead + len(lead)] = lead
        self.error = error


class _Begun(NamedTuple):
    """Progress: remaining topics, remaining partitions of ``topic``, and tagged sections before the next field."""

    topics: int
    partitions: int
    topic: str
    ends: int


class _Entry(NamedTuple):
    """An entry. ``aborted``: its number of aborted transactions. ``size`` is 0 if there are any: it is read later."""

    lead: int
    partition: int
    error: int
    log_start: int
    aborted: int
    size: int


class FetchAnswer:
    """Reads a Fetch answer. Take the records of each entry from the source before you call `next` again.

    ``topics``: the topics of the request, if it has ids in place of names.
    """

    def __init__(self, source: Peer, version: int, topics: dict[bytes, str]) -> None:
        self._source, self._version, self._flexible = source, version, APIS[Key.FETCH].is_flexible(version)
        self._topics = topics
        self._lead_size = _LEAD.size if version >= 5 else _LEAD.size - 8
        self._begun: _Begun | None = None
        self._rest = b""

    async def rest(self) -> bytes | bytearray:
        """Take and return the bytes after the last entry, without addresses of brokers. Raises Malformed.

        Call it once, after `next` has returned None.
        """
        left = self._source.left
        if not left:
            return self._rest
        if left > MOST:
            raise Malformed("an answer has more after its records than it may", length=left)
        rest = self._rest + await self._source.exactly(left)
        if self._version < WITH_ADDRESSES:
            return rest
        frame, shown = Frame(rest, len(self._rest)), bytearray(rest)
        self._end(frame, 0 if self._begun is None else self._begun.ends)
        hide_addresses(shown, frame.at)
        return shown

    async def next(self) -> AnsweredPartition | None:
        """Return the next entry, or None after the last entry. Raises Malformed."""
        if self._begun is not None and not (self._begun.topics or self._begun.partitions):
            return None
        (self._begun, entry), read = await begun(self._source, self._next)
        if entry is None:
            self._rest = read
            return None
        head, size = bytearray(read), entry.size
        if entry.aborted:
            for _ in range(entry.aborted):
                head += (await begun(self._source, self._aborted))[1]
            size, read = await begun(self._source, self._records)
            head += read
        topics, partitions, topic, _ = self._begun
        after, last = self._source.left - size, not topics and not partitions
        if after < 0 or (last and after and not self._flexible):
            raise Malformed("the records do not end with the answer", length=size, left=self._source.left)
        return AnsweredPartition(
            topic, entry.partition, entry.error, head, entry.lead, size, entry.log_start, self._version
        )

    # `begun` calls each of these functions again if too few bytes have arrived

    def _next(self, frame: Frame) -> tuple[_Begun, _Entry | None]:
        """Read an entry, and the bytes before it."""
        flexible = self._flexible
        topics, partitions, topic, ends = self._begun or self._begin(frame)
        while topics and not partitions:
            self._end(frame, ends)
            topic = frame.string(flexible) if self._version < TOPIC_IDS else read_topic_id(frame, self._topics, {})
            partitions = max(0, frame.length(flexible, short=False))
            topics, ends = topics - 1, 0 if partitions else 1
        if not partitions:
            return _Begun(topics, partitions, topic, ends), None
        self._end(frame, ends)
        lead = frame.skip(self._lead_size)
        partition, error = _NUMBER_AND_ERROR.unpack_from(frame.data, lead)
        log_start = _INT64.unpack_from(frame.data, frame.at - _INT64.size)[0] if self._version >= 5 else UNKNOWN
        aborted = max(0, frame.length(flexible, short=False))
        entry = _Entry(lead, partition, error, log_start, aborted, 0 if aborted else self._records(frame))
        return _Begun(topics, partitions - 1, topic, 1 if partitions > 1 else 2), entry

    def _begin(self, frame: Frame) -> _Begun:
        frame.tags(self._flexible)  # of the answer's header
        frame.skip(10 if self._version >= 7 else 4)  # throttle time; error, session
        return _Begun(max(0, frame.length(self._flexible, short=False)), 0, "", 0)

    def _aborted(self, frame: Frame) -> None:
        frame.skip(_ABORTED.size)
        frame.tags(self._flexible)

    def _records(self, frame: Frame) -> int:
        if self._version >= 11:
            frame.skip(4)  # preferred replica
        return max(0, frame.length(self._flexible, short=False))

    def _end(self, frame: Frame, ends: int) -> None:
        for _ in range(ends):
            frame.tags(self._flexible)


def fill_entry(entry: AnsweredPartition, piece: Fetched, bounds: LogicalBounds) -> list[bytes | memoryview]:
    """Return buffers to send in order: the bytes before the entry, and the entry with the records of ``piece``."""
    flexible = APIS[Key.FETCH].is_flexible(entry.version)
    head = entry.head[: entry.lead] + _lead(entry.version, entry.partition, 0, bounds)
    ends = b"\0" if flexible else b""
    head += length_of(len(piece.aborted), flexible)
    for transaction in piece.aborted:
        head += _ABORTED.pack(transaction.producer_id, transaction.first) + ends
    if entry.version >= 11:
        head += _INT32.pack(NO_REPLICA)
    head += length_of(len(piece.data), flexible)
    return [bytes(head), piece.data]
