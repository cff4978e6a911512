"""Fetch answers of one connection. An answer is streamed to the client, or held for a short time and filled.

    no remote records are ready  streamed: an out-of-range entry becomes "nothing yet" (no error, no records) in place,
                                 and its remote read begins
    some are ready, or the       held: remote records are added within the limits, and other out-of-range entries become
    answer may have no records   "nothing yet". The request's ``max_bytes`` was lowered for this before it was sent

An answer with records of the broker never waits for remote records, so that partitions at the end of their log are not
delayed. An answer without records waits, each time longer, up to `remote_wait`. This avoids a busy loop.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from . import codes
from .budget import FREE
from .cold_reads import ColdRead, ColdReads, wait_for_one
from .fetch_answer import UNKNOWN, AnsweredPartition, FetchAnswer, Said, filled, said_of
from .fetch_request import FetchRequest, Place, Wanted, lower
from .parts import ProxyParts
from .peer import Part, Peer, framed
from .read_log import Reads

FIRST_WAIT_S = 0.02
HELD_BYTES = 8 * 1024 * 1024
"""The most bytes of the broker's records in an answer that is held, unless one batch is larger."""
EMPTY_BYTES, EMPTY_ENTRY_BYTES = 1024, 320
"""An answer larger than the first, plus the second per partition, has records: topic names have up to 249 bytes."""
_INT32 = struct.Struct(">i")


@dataclass(slots=True)
class _Held:
    """An entry and the broker's records in it. ``position`` and ``read``: set if the broker lacks the offset."""

    entry: AnsweredPartition
    records: bytes
    position: Wanted | None = None
    read: ColdRead | None = None


class Fetches:
    """Handles Fetch requests and answers of one connection. Both tasks of the connection use it."""

    def __init__(self, client: Peer, broker: Peer, parts: ProxyParts, reads: Reads) -> None:
        self._client, self._broker, self._parts, self._reads = client, broker, parts, reads
        self._cold = ColdReads(parts.shared)
        self._wait_s = FIRST_WAIT_S

    def close(self) -> None:
        self._cold.close()

    def asked(self, request: FetchRequest, data: bytearray) -> None:
        """Lower ``max_bytes`` in ``data``, the bytes of ``request``, if remote records are expected for it."""
        if self._cold.of(request):
            lower(data, request, HELD_BYTES if self._parts.budget.has(HELD_BYTES) else FREE // 2)

    async def answer(self, size: int, lead: bytes, request: FetchRequest) -> None:
        """Send the client the answer, streamed or filled. ``size`` is its frame's, and ``lead`` its first bytes."""
        answer = FetchAnswer(self._broker, request.version)
        expected = self._cold.of(request)
        may_be_empty = size <= EMPTY_BYTES + EMPTY_ENTRY_BYTES * len(request.positions)
        if expected and (may_be_empty or any(read.ready for read in expected)):
            share = self._parts.budget.for_a_frame(size)
            if share is not None:
                with share:
                    await self._filled(lead, answer, request)
                return
        await self._streamed(size, lead, answer, request)

    async def _streamed(self, size: int, lead: bytes, answer: FetchAnswer, request: FetchRequest) -> None:
        client = self._client
        client.write(_INT32.pack(size) + lead)
        while (entry := await answer.next()) is not None:
            position, read = self._remote(entry, request)
            if position is not None:
                self._not_yet(entry, position, read)
            self._passed(entry, request, entry.size)
            client.write(entry.head)
            await self._broker.pipe(entry.size + entry.after, client)
        client.write(answer.rest)
        await self._broker.pipe(self._broker.left, client)
        await client.flush()

    async def _filled(self, lead: bytes, answer: FetchAnswer, request: FetchRequest) -> None:
        held: list[_Held] = []
        while (entry := await answer.next()) is not None:
            position, read = self._remote(entry, request)
            held.append(_Held(entry, await self._broker.exactly(entry.size), position, read))
        rest = answer.rest + await self._broker.exactly(self._broker.left)
        local = sum(len(partition.records) for partition in held)
        reads = [partition.read for partition in held if partition.read is not None]
        if not local:
            await wait_for_one(reads, min(self._wait_s, request.max_wait_ms / 1000))
        parts: list[Part] = [lead]
        filled_reads: list[ColdRead] = []
        room = request.max_bytes - local
        for partition in held:
            piece = None if partition.read is None else partition.read.piece
            if (
                partition.read is not None
                and piece is not None
                and piece.data
                and self._fits(piece.data, room, local, filled_reads)
            ):
                room -= len(piece.data)
                parts += filled(partition.entry, piece)
                filled_reads.append(partition.read)
                self._reads.saw(partition.read.place, "remote", partition.read.offset, len(piece.data))
                continue
            if partition.position is not None:
                self._not_yet(partition.entry, partition.position, partition.read)
            self._passed(partition.entry, request, len(partition.records))
            parts += [partition.entry.head, partition.records]
        for read in filled_reads:
            self._cold.handed_out(read, request.positions[read.place])
        self._wait_s = FIRST_WAIT_S if local or filled_reads else min(2 * self._wait_s, self._parts.remote_wait_s)
        self._parts.counts.filled += len(filled_reads)
        self._parts.counts.filled_bytes += sum(len(read.piece.data) for read in filled_reads if read.piece is not None)
        try:
            with self._parts.budget.sent_to(self._client):
                await self._client.send(framed([*parts, rest]))
        finally:
            for read in filled_reads:
                read.release()

    def _fits(self, data: bytes | memoryview, room: int, local: int, filled_reads: list[ColdRead]) -> bool:
        """Return whether ``data`` fits. The first records of an answer always fit, so that consumers advance."""
        return len(data) <= room or not (local or filled_reads)

    def _remote(self, entry: AnsweredPartition, request: FetchRequest) -> tuple[Wanted | None, ColdRead | None]:
        """Return the position and its remote read, if one began. Both are None if the broker has the offset."""
        place = (entry.topic, entry.partition)
        position = request.positions.get(place)
        if position is None or request.follower:
            return None, None
        if entry.error != codes.OFFSET_OUT_OF_RANGE:
            self._cold.drop(place)
            return None, None
        return position, self._cold.get(place, position, request.isolation)

    def _not_yet(self, entry: AnsweredPartition, position: Wanted, read: ColdRead | None) -> None:
        """Change ``entry`` to the read's error, or to "nothing yet": its end is higher, so clients fetch again."""
        if read is not None and read.error is not None:
            code = codes.code_of(read.error)
            self._parts.counts.errors[code] += 1
            if code != codes.OFFSET_OUT_OF_RANGE:
                entry.says(code, Said(UNKNOWN, UNKNOWN, UNKNOWN))
            return
        self._parts.counts.not_yet += 1
        piece = None if read is None else read.piece
        beyond = position.offset + 1
        entry.says(codes.NONE, Said(beyond, beyond, UNKNOWN) if piece is None else said_of(piece.bounds))
        if read is not None and piece is not None and not piece.data:
            self._cold.drop(read.place)  # the read found no remote records: ask the broker again

    def _passed(self, entry: AnsweredPartition, request: FetchRequest, size: int) -> None:
        self._parts.counts.passed_bytes += size
        if not size:
            return
        self._parts.counts.passed += 1
        place: Place = (entry.topic, entry.partition)
        if (position := request.positions.get(place)) is not None:
            self._reads.saw(place, "local", position.offset, size)
