"""Fetch answers of one connection. An answer is streamed to the client, or held and filled with remote records.

    the broker has records, and      streamed: an entry that is out of range at the broker becomes "nothing yet" in
    no remote ones are ready         place (no error, no records, the true bounds), and its remote read begins
    the answer may have no records,  held: remote records are added within the limits. The request's ``max_bytes`` was
    or remote ones are ready         lowered for this before it was sent

An answer with records of the broker never waits for remote records, so that partitions at the end of their log are not
delayed. An answer without records of the broker waits for remote records. It waits as long as the client allows if the
broker lacks the offsets of all entries, otherwise at most `remote_wait`, because new records may arrive at the broker.
It also waits only that long if the request omits the partition that gave the connection its last local records: clients
omit a partition while they have many records of it, and request it again only after this answer.

Bounds in an answer are those of both tiers. An offset outside of them keeps the broker's OFFSET_OUT_OF_RANGE.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass

from ..state.errors import TierstateError, UnknownTopic
from ..state.ids import TopicId
from . import codes
from .budget import FREE, Budget
from .codes import Counts
from .deletions import Deletions
from .fetch_answer import AnsweredPartition, FetchAnswer, fill_entry
from .fetch_request import HELD_BYTES, FetchPosition, FetchRequest, Place, lower, send_beyond
from .known_bounds import Known, KnownBounds
from .listeners import Listeners
from .older_offsets import OlderOffsets
from .peer import Part, Peer, framed
from .read_log import ReadLog, Reads
from .remote_reads import ConnectionReads, RemoteRead, RemoteReads, wait_for_one
from .topic_names import TopicNames

BOUNDS_WAIT_S = 1.0
"""The most seconds that an answer without records waits for the bounds of both tiers."""
EMPTY_BYTES, EMPTY_ENTRY_BYTES = 1024, 320
"""An answer larger than EMPTY_BYTES plus EMPTY_ENTRY_BYTES per partition has records."""
_INT32 = struct.Struct(">i")


@dataclass(slots=True)
class _RemoteEntry:
    """An entry whose offset the broker lacks. `Fetches._find_bounds` sets ``known`` (the bounds), or else ``error``."""

    entry: AnsweredPartition
    position: FetchPosition
    read: RemoteRead | None
    known: Known | None = None
    error: TierstateError | None = None

    @property
    def is_outside(self) -> bool:
        if self.known is None:
            return False
        bounds = self.known.bounds
        return not (bounds.log_start or 0) <= self.position.offset <= bounds.high_watermark

    @property
    def piece_size(self) -> int:
        """Return the number of bytes that can be sent now: 0 without a piece, or with a piece of another log."""
        piece = None if self.read is None else self.read.piece
        if piece is None or self.known is None or self.is_outside:
            return 0
        return len(piece.data) if piece.topic_id in (None, self.known.topic_id) else 0


@dataclass(frozen=True, slots=True)
class ProxyParts:
    """The shared parts. ``remote_wait_s``: the most seconds that an answer without records waits for remote records.

    ``whole_log``: the brokers know both tiers themselves (KIP-405), and only remote records are kept off them.
    """

    remote_reads: RemoteReads
    bounds: KnownBounds
    names: TopicNames
    older: OlderOffsets
    deletions: Deletions
    listeners: Listeners
    counts: Counts
    read_log: ReadLog
    read_only: bool
    remote_wait_s: float
    whole_log: bool = False

    @property
    def budget(self) -> Budget:
        return self.remote_reads.budget


class Fetches:
    """Handles Fetch requests and answers of one connection. Both tasks of the connection use it."""

    def __init__(self, client: Peer, broker: Peer, parts: ProxyParts, reads: Reads) -> None:
        self._client, self._broker, self._parts, self._reads = client, broker, parts, reads
        self._remote = ConnectionReads(parts.remote_reads)
        self._last_local: Place | None = None
        """The partition of the last local records that this client got."""

    def close(self) -> None:
        self._remote.close()

    async def prepare(self, request: FetchRequest, data: bytearray) -> None:
        """Lower ``max_bytes`` in ``data``, the bytes of ``request``, if remote records are expected for it.

        A broker that tiers its topics itself (KIP-405) would read remote records for this request. So remote offsets
        are replaced by one beyond the log, and the broker answers like a broker that lacks them.
        """
        if self._parts.whole_log and not request.follower:
            await asyncio.gather(*(self._send_beyond(each, request, data) for each in request.positions))
        if self._remote.of(request):
            lower(data, request, HELD_BYTES if self._parts.budget.has(HELD_BYTES) else FREE // 2)

    async def _send_beyond(self, place: Place, request: FetchRequest, data: bytearray) -> None:
        known = await self._parts.bounds.seldom(place, self._parts.remote_wait_s)
        position = request.positions[place]
        if known is not None and position.offset < known.bounds.local_start:
            send_beyond(data, position)

    async def answer(self, size: int, lead: bytes, request: FetchRequest) -> None:
        """Send the client the answer, streamed or filled. ``size``: of its frame; ``lead``: the frame's first bytes."""
        answer = FetchAnswer(self._broker, request.version, request.topics)
        may_be_empty = size <= EMPTY_BYTES + EMPTY_ENTRY_BYTES * len(request.positions)
        if may_be_empty or any(read.ready for read in self._remote.of(request)):
            share = self._parts.budget.for_a_frame(size)
            if share is not None:
                with share:
                    await self._send_filled(lead, answer, request, may_be_empty)
                return
        await self._stream(size, lead, answer, request)

    async def _stream(self, size: int, lead: bytes, answer: FetchAnswer, request: FetchRequest) -> None:
        client, wait_s = self._client, self._parts.remote_wait_s
        client.write(_INT32.pack(size) + lead)
        while (entry := await answer.next()) is not None:
            remote = await self._begin_read(entry, request)
            if remote is not None:
                await self._find_bounds(remote, wait_s, at_once=True)
                self._answer_not_yet(remote)
            self._count_passed(entry, request, entry.size)
            client.write(entry.head)
            await self._broker.pipe(entry.size, client)
        client.write(await answer.rest())
        await client.flush()

    async def _send_filled(self, lead: bytes, answer: FetchAnswer, request: FetchRequest, may_be_empty: bool) -> None:
        held: list[tuple[AnsweredPartition, bytes, _RemoteEntry | None]] = []
        missing: list[_RemoteEntry] = []
        while (entry := await answer.next()) is not None:
            records = await self._broker.exactly(entry.size)
            remote = await self._begin_read(entry, request)
            held.append((entry, records, remote))
            if remote is not None:
                missing.append(remote)
        rest = await answer.rest()
        parts: list[Part] = [lead]
        if not missing:
            for entry, records, _ in held:
                self._count_passed(entry, request, len(records))
                parts += (entry.head, records)
            whole = framed([*parts, rest])
            if may_be_empty:  # small, and the most frequent answer: this makes fewer calls than `send`
                self._client.write(b"".join(whole))
                await self._client.flush()
            else:
                await self._client.send(whole)
            return
        local = sum(len(records) for _, records, _ in held)
        omits_local = self._last_local not in (None, *request.positions)
        await self._wait(missing, request, bool(local), only_missing=len(missing) == len(held) and not omits_local)
        sent: list[RemoteRead] = []
        room = request.max_bytes - local
        for entry, records, remote in held:
            size = 0 if remote is None else remote.piece_size
            # the first records of an answer always fit, so that consumers advance
            if remote is not None and size and (size <= room or not (local or sent)):
                room -= size
                sent.append(self._fill(remote, parts))
                continue
            if remote is not None:
                self._answer_not_yet(remote)
            self._count_passed(entry, request, len(records))
            parts += [entry.head, records]
        for read in sent:
            self._remote.handed_out(read, request.positions[read.place])
        try:
            with self._parts.budget.sent_to(self._client):
                await self._client.send(framed([*parts, rest]))
        finally:
            for read in sent:
                self._remote.sent(read)

    def _fill(self, remote: _RemoteEntry, parts: list[Part]) -> RemoteRead:
        """Append the entry with its remote records to ``parts``. Return their read."""
        assert remote.read is not None
        assert remote.read.piece is not None
        assert remote.known is not None
        piece = remote.read.piece
        parts += fill_entry(remote.entry, piece, remote.known.bounds)
        self._parts.counts.filled += 1
        self._parts.counts.filled_bytes += len(piece.data)
        self._reads.saw(remote.read.place, "remote", remote.position.offset, len(piece.data))
        return remote.read

    async def _begin_read(self, entry: AnsweredPartition, request: FetchRequest) -> _RemoteEntry | None:
        """Begin the remote read of an entry whose offset the broker lacks. Correct the log start in other entries."""
        place = entry.place
        position = request.positions.get(place)
        if position is None or request.follower:
            return None
        if entry.error == codes.OFFSET_OUT_OF_RANGE:
            if isinstance(entry.topic, TopicId):
                return _RemoteEntry(entry, position, None, error=UnknownTopic("no name is known", topic_id=entry.topic))
            return _RemoteEntry(entry, position, self._remote.get(place, position, request.isolation))
        self._remote.drop(place)
        if entry.log_start > 0 and entry.error == codes.NONE and not isinstance(entry.topic, TopicId):
            known = await self._parts.bounds.seldom(place, self._parts.remote_wait_s)
            if known is not None and known.bounds.log_start is not None:
                entry.set_log_start(min(known.bounds.log_start, entry.log_start))
        return None

    async def _wait(
        self, missing: list[_RemoteEntry], request: FetchRequest, has_local: bool, *, only_missing: bool
    ) -> None:
        """Wait for the bounds of ``missing``, and, if the answer has no records, for remote records."""
        wait_s = self._parts.remote_wait_s
        await asyncio.gather(*(self._find_bounds(each, wait_s if has_local else BOUNDS_WAIT_S) for each in missing))
        if has_local or any(each.is_outside for each in missing):
            return
        readable = [each for each in missing if each.error is None]
        longest, loop = request.max_wait_ms / 1000, asyncio.get_running_loop()
        ends = loop.time() + (longest if only_missing else min(longest, wait_s))
        while True:
            reads = [each.read for each in readable if each.read is not None]
            has_all, left = len(reads) == len(readable), ends - loop.time()
            succeeded = await wait_for_one(reads, left if has_all else min(left, wait_s), wait_s)
            if succeeded or has_all or left <= wait_s:
                return
            for each in readable:  # some reads have not begun: there was no memory for them
                if each.read is None:
                    each.read = self._remote.get(each.entry.place, each.position, request.isolation)

    async def _find_bounds(self, remote: _RemoteEntry, wait_s: float, *, at_once: bool = False) -> None:
        """Set the bounds of an entry. Bounds without its offset are requested again: they may be outdated."""
        if remote.error is not None:
            return
        try:
            remote.known = await self._parts.bounds.of(remote.entry.place, wait_s, at_once=at_once)
            if remote.is_outside:
                remote.known = await self._parts.bounds.of(remote.entry.place, wait_s, fresh=True)
        except TierstateError as error:
            remote.known, remote.error = None, error

    def _answer_not_yet(self, remote: _RemoteEntry) -> None:
        """Change the entry to an error, or to "nothing yet": its end is higher, so clients fetch again."""
        entry, read = remote.entry, remote.read
        error = remote.error or (None if read is None else read.error)
        code = codes.OFFSET_OUT_OF_RANGE if remote.is_outside else codes.NONE if error is None else codes.code_of(error)
        if code != codes.NONE:
            self._parts.counts.errors[code] += 1
            if code != codes.OFFSET_OUT_OF_RANGE:
                entry.set_result(code, None)
            return
        assert remote.known is not None
        self._parts.counts.not_yet += 1
        entry.set_result(codes.NONE, remote.known.bounds)
        if read is not None and read.ready and not remote.piece_size:
            self._remote.drop(read.place)  # the read found no remote records of this log: ask the broker again

    def _count_passed(self, entry: AnsweredPartition, request: FetchRequest, size: int) -> None:
        self._parts.counts.passed_bytes += size
        if not size:
            return
        self._parts.counts.passed += 1
        self._last_local = entry.place
        if (position := request.positions.get(entry.place)) is not None:
            self._reads.saw(entry.place, "local", position.offset, size)
