"""A Fetch answer, entry by entry: read up to the records' length and never into them.

    header | throttle | error | session | [topic, [entry: index, error, bounds, aborted, replica, records], tags], tags

An entry's error code and bounds have fixed places, so an entry without records is changed where it stands; one that
gets records is written anew (`filled`).
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass

from ..broker.wire import length_of
from ..fetch.piece import Fetched, LogicalBounds
from .apis import APIS, Key
from .arriving import Kept, Source

OFFSET_OUT_OF_RANGE = 1
_LEAD = struct.Struct(">ihqqq")
"""Partition, error code, high watermark, last stable offset, log start offset."""
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

    ``size``: bytes of records, that follow in the answer. ``version``: of the answer.
    """

    topic: str
    partition: int
    error: int
    head: bytearray
    lead: int
    size: int
    version: int

    def says(self, error: int, bounds: Said) -> None:
        """This in place of what the broker said of a partition that it gave no records of."""
        lead = _lead(self.version, self.partition, error, bounds)
        self.head[self.lead : self.lead + len(lead)] = lead
        self.error = error


class FetchAnswer(Kept):
    """Read by iterating over `entries`, consuming the records of each before the next is asked for; then `rest`."""

    def __init__(self, source: Source, version: int) -> None:
        super().__init__(source, flexible=APIS[Key.FETCH].is_flexible(version))
        self._version = version

    async def entries(self) -> AsyncIterator[AnsweredPartition]:
        await self.tags()  # of the answer's header
        await self.take(4)  # throttle time
        if self._version >= 7:
            await self.take(6)  # error, session
        for _ in range(await self.count()):
            topic = (await self.text()).decode("utf-8", "replace")
            for _ in range(await self.count()):
                yield await self._entry(topic)
                await self.tags()
            await self.tags()
        await self.tags()

    @property
    def rest(self) -> bytes:
        """What follows the last entry's records."""
        return bytes(self.kept)

    async def _entry(self, topic: str) -> AnsweredPartition:
        lead = len(self.kept)
        await self.take(_LEAD.size if self._version >= 5 else _LEAD.size - 8)
        partition, error = struct.unpack_from(">ih", self.kept, lead)
        for _ in range(await self.count()):  # null for none
            await self.take(_ABORTED.size)
            await self.tags()
        if self._version >= 11:
            await self.take(4)
        size = await self.count()
        head, self.kept = self.kept, bytearray()
        return AnsweredPartition(topic, partition, error, head, lead, size, self._version)


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
