"""Fetch answers of one connection: streamed through, or held for a moment and filled.

    no remote records at hand    streamed; an entry that is out of range says "nothing yet", where it stands, and its
                                 remote read begins
    some at hand, or the answer  held: remote records go into it, limits kept; what is not ready says "nothing yet".
    has no room for any record   Where they are expected, the request's ``max_bytes`` is lowered before it

A cold partition must not starve the hot ones fetched with it: an answer with records of the broker's own never waits
for remote ones. One without waits, a little longer each time, to `remote_wait`, so that it is no busy loop.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from . import codes
from .budget import FREE
from .cold_reads import ColdRead, ColdReads, wait_for_one
from .fetch_answer import UNKNOWN, AnsweredPartition, FetchAnswer, Said, filled, said_of
from .fetch_request import FetchRequest, Place, Wanted, lower
from .house import House
from .peer import Part, Peer, framed
from .read_log import Reads

FIRST_WAIT_S = 0.02
HELD_BYTES = 8 * 1024 * 1024
"""Of the broker's own records in an answer that is held: less than that, or one batch."""
EMPTY_BYTES, EMPTY_ENTRY_BYTES = 1024, 320
"""An answer of more than that, and for each partition that, has records: a topic's name has up to 249 bytes."""
_INT32 = struct.Struct(">i")


@dataclass(slots=True)
class _Held:
    """An entry with the broker's own records; ``read``: what may be put in their place."""

    entry: AnsweredPartition
    records: bytes
    wanted: Wanted | None = None
    read: ColdRead | None = None


class Fetches:
    """By the connection's two tasks."""

    def __init__(self, client: Peer, broker: Peer, house: House, reads: Reads) -> None:
        self._client, self._broker, self._house, self._reads = client, broker, house, reads
        self._cold = ColdReads(house.shared)
        self._patience = FIRST_WAIT_S

    def close(self) -> None:
        self._cold.close()

    def asked(self, request: FetchRequest, data: bytearray) -> None:
        """Before the request ``data`` goes to the broker."""
        if self._cold.of(request):
            lower(data, request, HELD_BYTES if self._house.budget.has(HELD_BYTES) else FREE // 2)

    async def answer(self, size: int, lead: bytes, request: FetchRequest) -> None:
        """Of a frame of ``size`` that begins with ``lead``, to the client."""
        answer = FetchAnswer(self._broker, request.version)
        expected = self._cold.of(request)
        may_be_empty = size <= EMPTY_BYTES + EMPTY_ENTRY_BYTES * len(request.wanted)
        if expected and (may_be_empty or any(read.ready for read in expected)):
            share = self._house.budget.for_a_frame(size)
            if share is not None:
                with share:
                    await self._filled(lead, answer, request)
                return
        await self._streamed(size, lead, answer, request)

    async def _streamed(self, size: int, lead: bytes, answer: FetchAnswer, request: FetchRequest) -> None:
        client = self._client
        client.write(_INT32.pack(size) + lead)
        while (entry := await answer.next()) is not None:
            wanted, read = self._remote(entry, request)
            if wanted is not None:
                self._not_yet(entry, wanted, read)
            self._passed(entry, request, entry.size)
            client.write(entry.head)
            await self._broker.pipe(entry.size + entry.after, client)
        client.write(answer.rest)
        await self._broker.pipe(self._broker.left, client)
        await client.flush()

    async def _filled(self, lead: bytes, answer: FetchAnswer, request: FetchRequest) -> None:
        held: list[_Held] = []
        while (entry := await answer.next()) is not None:
            wanted, read = self._remote(entry, request)
            held.append(_Held(entry, await self._broker.exactly(entry.size), wanted, read))
        rest = answer.rest + await self._broker.exactly(self._broker.left)
        local = sum(len(each.records) for each in held)
        reads = [each.read for each in held if each.read is not None]
        if not local:
            await wait_for_one(reads, min(self._patience, request.max_wait_ms / 1000))
        parts: list[Part] = [lead]
        given: list[ColdRead] = []
        room = request.max_bytes - local
        for each in held:
            piece = None if each.read is None else each.read.piece
            if (
                each.read is not None
                and piece is not None
                and piece.data
                and self._fits(piece.data, room, local, given)
            ):
                room -= len(piece.data)
                parts += filled(each.entry, piece)
                given.append(each.read)
                self._reads.saw(each.read.place, "remote", each.read.offset, len(piece.data))
                continue
            if each.wanted is not None:
                self._not_yet(each.entry, each.wanted, each.read)
            self._passed(each.entry, request, len(each.records))
            parts += [each.entry.head, each.records]
        for read in given:
            self._cold.handed_out(read, request.wanted[read.place])
        self._patience = FIRST_WAIT_S if local or given else min(2 * self._patience, self._house.remote_wait_s)
        self._house.counts.filled += len(given)
        self._house.counts.filled_bytes += sum(len(read.piece.data) for read in given if read.piece is not None)
        try:
            with self._house.budget.sent_to(self._client):
                await self._client.send(framed([*parts, rest]))
        finally:
            for read in given:
                read.release()

    def _fits(self, data: bytes | memoryview, room: int, local: int, given: list[ColdRead]) -> bool:
        """The first records of an answer are given whatever their size, as brokers do: a reader must get on."""
        return len(data) <= room or not (local or given)

    def _remote(self, entry: AnsweredPartition, request: FetchRequest) -> tuple[Wanted | None, ColdRead | None]:
        """What is to be looked for in the remote tier, where the broker said that it has it no more; and its read."""
        place = (entry.topic, entry.partition)
        wanted = request.wanted.get(place)
        if wanted is None or request.follower:
            return None, None
        if entry.error != codes.OFFSET_OUT_OF_RANGE:
            self._cold.drop(place)
            return None, None
        return wanted, self._cold.get(place, wanted, request.isolation)

    def _not_yet(self, entry: AnsweredPartition, wanted: Wanted, read: ColdRead | None) -> None:
        """Nothing yet, or the error that it ended in. The log is said to go on: no client may think it has ended."""
        if read is not None and read.error is not None:
            code = codes.code_of(read.error)
            self._house.counts.errors[code] += 1
            if code != codes.OFFSET_OUT_OF_RANGE:
                entry.says(code, Said(UNKNOWN, UNKNOWN, UNKNOWN))
            return
        self._house.counts.not_yet += 1
        piece = None if read is None else read.piece
        beyond = wanted.offset + 1
        entry.says(codes.NONE, Said(beyond, beyond, UNKNOWN) if piece is None else said_of(piece.bounds))
        if read is not None and piece is not None and not piece.data:
            self._cold.drop(read.place)  # the broker has it, or the log goes on elsewhere: it is asked again

    def _passed(self, entry: AnsweredPartition, request: FetchRequest, size: int) -> None:
        self._house.counts.passed_bytes += size
        if not size:
            return
        self._house.counts.passed += 1
        place: Place = (entry.topic, entry.partition)
        if (wanted := request.wanted.get(place)) is not None:
            self._reads.saw(place, "local", wanted.offset, size)
