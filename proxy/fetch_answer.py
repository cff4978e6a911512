"""A Fetch answer, entry by entry: read up to the records' length and never into them.

    header | throttle | error | session | [topic, [entry: index, error, bounds, aborted, replica, records], tags], tags

An entry's error code and bounds have fixed places, so an entry without records is changed where it stands; one that
gets records is written anew (`filled`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from ..broker.wire import Frame, Malformed, length_of
from ..fetch.piece import Fetched, LogicalBounds
from .apis import APIS, Key
from .arriving import Source, begun

OFFSET_OUT_OF_RANGE = 1
_LEAD = struct.Struct(">ihqqq")
"""Partition, error code, high watermark, last stable offset, log start offset."""
_NUMBER_AND_ERROR = struct.Struct(">ih")
_ABORTED = struct.Struct(">qq")
_INT32 = struct.Struct(">i")
NO_REPLICA = -1
UNKNOWN = -1


class Said(NamedTuple):
    """Of one partition, as a Fetch answer has it; -1 for what is not known."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


def _lead(version: int, partition: int, error: int, said: Said) -> bytes:
    lead = _LEAD.pack(partition, error, said.high_watermark, said.last_stable_offset, said.log_start_offset)
    return lead if version >= 5 else lead[:-8]


@dataclass(slots=True)
class AnsweredPartition:
    """``head``: everything since the entry before, up to the records; ``lead``: where in it the entry begins.

    ``size``: bytes of records, that follow in the answer; ``after``: of the last entry, bytes that follow them.
    ``version``: of the answer.
    """

    topic: str
    partition: int
    error: int
    head: bytearray
    lead: int
    size: int
    after: int
    version: int

    def says(self, error: int, bounds: Said) -> None:
        """This in place of what the broker said of a partition that it gave no records of."""
        lead = _lead(self.version, self.partition, error, bounds)
        self.head[self.lead : self.lead + len(lead)] = lead
        self.error = error


class _Begun(NamedTuple):
    """Of an answer: topics that are still to come, partitions of this one, and tagged fields before what follows."""

    topics: int
    partitions: int
    topic: str
    ends: int


class _Entry(NamedTuple):
    """Where it begins, its number, error code, aborted transactions; bytes of records, where it has none of those."""

    lead: int
    partition: int
    error: int
    aborted: int
    size: int


class FetchAnswer:
    """Entry by entry, the records of each being taken before the `next` one is asked for; then `rest`."""

    def __init__(self, source: Source, version: int) -> None:
        self._source, self._version, self._flexible = source, version, APIS[Key.FETCH].is_flexible(version)
        self._lead_size = _LEAD.size if version >= 5 else _LEAD.size - 8
        self._begun: _Begun | None = None
        self.rest = b""
        """What was read since the last entry. The tagged fields that end the answer are not read: they pass."""

    async def next(self) -> AnsweredPartition | None:
        """None: there is no other."""
        if self._begun is not None and not (self._begun.topics or self._begun.partitions):
            return None
        (self._begun, entry), read = await begun(self._source, self._next)
        if entry is None:
            self.rest = read
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
            topic, entry.partition, entry.error, head, entry.lead, size, after if last else 0, self._version
        )

    # each in one go, and again where not enough of it came

    def _next(self, frame: Frame) -> tuple[_Begun, _Entry | None]:
        """An entry, and what precedes it."""
        flexible = self._flexible
        topics, partitions, topic, ends = self._begun or self._begin(frame)
        while topics and not partitions:
            self._end(frame, ends)
            topic, partitions = frame.string(flexible), max(0, frame.length(flexible, short=False))
            topics, ends = topics - 1, 0 if partitions else 1
        if not partitions:
            return _Begun(topics, partitions, topic, ends), None
        self._end(frame, ends)
        lead = frame.skip(self._lead_size)
        partition, error = _NUMBER_AND_ERROR.unpack_from(frame.data, lead)
        aborted = max(0, frame.length(flexible, short=False))
        entry = _Entry(lead, partition, error, aborted, 0 if aborted else self._records(frame))
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


def said_of(bounds: LogicalBounds) -> Said:
    start = UNKNOWN if bounds.log_start is None else bounds.log_start
    return Said(bounds.high_watermark, bounds.last_stable_offset, start)


def filled(entry: AnsweredPartition, piece: Fetched) -> list[bytes | memoryview]:
    """The entry with the records of ``piece``, and what preceded it in the answer: buffers to be written in order."""
    flexible = APIS[Key.FETCH].is_flexible(entry.version)
    head = entry.head[: entry.lead] + _lead(entry.version, entry.partition, 0, said_of(piece.bounds))
    ends = b"\0" if flexible else b""
    head += length_of(len(piece.aborted), flexible)
    for each in piece.aborted:
        head += _ABORTED.pack(each.producer_id, each.first) + ends
    if entry.version >= 11:
        head += _INT32.pack(NO_REPLICA)
    head += length_of(len(piece.data), flexible)
    return [bytes(head), piece.data]
