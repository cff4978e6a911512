"""A Fetch answer, entry by entry: read up to the records' length and never into them.

    header | throttle | error | session | [topic, [entry: index, error, bounds, aborted, replica, records], tags], tags

An entry's error code and bounds have fixed places, so an entry without records is changed where it stands; one that
gets records is written anew (`filled`).
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Said:
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


class FetchAnswer:
    """Read by iterating over `entries`, consuming the records of each before the next is asked for; then `rest`."""

    def __init__(self, source: Source, version: int) -> None:
        self._source, self._version, self._flexible = source, version, APIS[Key.FETCH].is_flexible(version)
        self._lead_size = _LEAD.size if version >= 5 else _LEAD.size - 8
        self._ends = 0
        self.rest = b""
        """What was read since the last entry. The tagged fields that end the answer are not read: they pass."""

    async def entries(self) -> AsyncIterator[AnsweredPartition]:
        topics, self.rest = await begun(self._source, self._begin)
        for topics_left in range(topics, 0, -1):
            (topic, partitions), head = await begun(self._source, self._topic)
            self.rest += head
            self._ends = 0
            for partitions_left in range(partitions, 0, -1):
                yield await self._entry(topic, topics_left == partitions_left == 1)
                self._ends = 1
            self._ends += 1

    async def _entry(self, topic: str, last: bool) -> AnsweredPartition:
        (lead, partition, error, aborted, size), entry = await begun(self._source, self._partition)
        self._ends = 0
        lead += len(self.rest)
        head, self.rest = bytearray(self.rest + entry), b""
        if aborted:
            for _ in range(aborted):
                head += (await begun(self._source, self._aborted))[1]
            size, entry = await begun(self._source, self._records)
            head += entry
        after = self._source.left - size
        if after < 0 or (last and after and not self._flexible):
            raise Malformed("the records do not end with the answer", length=size, left=self._source.left)
        return AnsweredPartition(topic, partition, error, head, lead, size, after if last else 0, self._version)

    # each of one piece, after the tagged fields that end those before it

    def _begin(self, frame: Frame) -> int:
        frame.tags(self._flexible)  # of the answer's header
        frame.skip(4)  # throttle time
        if self._version >= 7:
            frame.skip(6)  # error, session
        return max(0, frame.length(self._flexible, short=False))

    def _topic(self, frame: Frame) -> tuple[str, int]:
        self._end_others(frame)
        return frame.string(self._flexible), max(0, frame.length(self._flexible, short=False))

    def _partition(self, frame: Frame) -> tuple[int, int, int, int, int]:
        """Where it begins, its number, error code, aborted transactions; bytes of records, where there are none."""
        self._end_others(frame)
        lead = frame.skip(self._lead_size)
        partition, error = _NUMBER_AND_ERROR.unpack_from(frame.data, lead)
        aborted = max(0, frame.length(self._flexible, short=False))
        return lead, partition, error, aborted, 0 if aborted else self._records(frame)

    def _aborted(self, frame: Frame) -> None:
        frame.skip(_ABORTED.size)
        frame.tags(self._flexible)

    def _records(self, frame: Frame) -> int:
        if self._version >= 11:
            frame.skip(4)  # preferred replica
        return max(0, frame.length(self._flexible, short=False))

    def _end_others(self, frame: Frame) -> None:
        for _ in range(self._ends):
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
