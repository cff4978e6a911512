"""Relay one client's connection over a separate connection to the broker, in order. Most frames pass unchanged.

    client ── frame ──> its first bytes are read ─────────────────────────────> broker
                         └─ Fetch, ListOffsets, epochs, DeleteRecords: the parsed request is kept for its answer
    client <── frame ── most: passed · addresses: replaced · offsets: patched · Fetch: filled <── broker

Requests go to the broker first, with the client's own principal. The remote tier is read only for records and offsets
that the broker reports as missing (`fetches.py`, `older_offsets.py`). A read-only proxy refuses Produce by itself.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from ..broker.oauth import claims_of
from ..broker.wire import Frame, Malformed
from ..state.errors import InvalidRequest
from ..state.ids import TopicId
from . import addresses, codes
from .apis import APIS, Key, offered
from .budget import Share
from .deletions import Held
from .direct import Gone
from .fetch_request import FetchRequest, Place, read_fetch
from .fetches import Fetches, ProxyParts
from .older_offsets import read_epochs, read_list_offsets
from .peer import Peer, begun, framed
from .produce import PRODUCE_WITH_ADDRESSES, refused_produce, without_addresses
from .read_log import Reads
from .share_fetch import lower_share_fetch, share_reads

LARGEST_WHOLE = 64 * 1024 * 1024
"""The most bytes of a frame that is held in memory to be parsed."""
FIRST_BYTES = 70_000
"""Bytes of a Produce request that contain ``acks``: more than the largest header and transactional id."""
MOST_PENDING = 1000
"""The most requests without an answer. A broker handles one at a time; the others wait in sockets."""
_HEADER = struct.Struct(">hhi")
_INT32 = struct.Struct(">i")
LOOKED_INTO = frozenset(
    {
        Key.FETCH,
        Key.SHARE_FETCH,
        Key.LIST_OFFSETS,
        Key.DELETE_RECORDS,
        Key.OFFSET_FOR_LEADER_EPOCH,
        Key.SASL_HANDSHAKE,
        Key.SASL_AUTHENTICATE,
    }
)
WITH_ADDRESSES = frozenset({Key.FIND_COORDINATOR, Key.DESCRIBE_CLUSTER, Key.SHARE_FETCH, Key.SHARE_ACKNOWLEDGE})
"""Metadata also has addresses, but only its beginning is parsed."""


class Refused(InvalidRequest):
    """Raised for a refused request. The connection is closed, as brokers do for unknown requests."""


@dataclass(slots=True)
class Pending:
    """A request without an answer yet. ``answer``: the proxy's, without length, or None if the broker answers."""

    key: int
    version: int
    correlation: int
    fetch: FetchRequest | None = None
    offsets: dict[Place, int] | None = None
    epochs: dict[Place, int] | None = None
    deletions: Held | None = None
    answer: bytes | None = None


class Relay:
    """Relays one connection. Call `run` once. It closes the connected peers ``client`` and ``broker`` when it ends."""

    def __init__(self, client: Peer, broker: Peer, parts: ProxyParts) -> None:
        self._client, self._broker, self._parts = client, broker, parts
        self._reads = Reads(parts.read_log, client.address)
        self._fetches = Fetches(client, broker, parts, self._reads)
        self._pending: deque[Pending] = deque()
        self._room = asyncio.Event()
        self._mechanism = self._claimed = ""

    async def run(self) -> None:
        """Relay until either end closes, which is no error. Raises Malformed, Refused and Unavailable."""
        both = [asyncio.create_task(coroutine) for coroutine in (self._requests(), self._answers())]
        done: set[asyncio.Task[None]] = set()
        try:
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                with suppress(Gone):
                    task.result()
        finally:
            for task in both:
                task.cancel()
            try:
                await asyncio.gather(*both, return_exceptions=True)
            finally:  # also if the proxy is stopped during the wait
                del both, done, task  # otherwise this frame keeps their exceptions, and with them the data being read
                self._fetches.close()
                self._reads.close()
                self._client.close()
                self._broker.abort()

    # client -> broker

    async def _requests(self) -> None:
        client, broker = self._client, self._broker
        while (size := await client.frame()) is not None:
            if size < _HEADER.size:
                raise Malformed("a request without a header", length=size)
            head = await client.exactly(_HEADER.size)
            key, version, correlation = _HEADER.unpack(head)
            self._check(key, version)
            while len(self._pending) >= MOST_PENDING:
                self._room.clear()
                await self._room.wait()
            pending = Pending(key, version, correlation)
            if key in LOOKED_INTO:
                await self._look_into(size, head, pending)
                continue
            if key == Key.PRODUCE and self._parts.read_only:
                await self._refuse_produce(pending)
                continue
            if key == Key.PRODUCE:
                head += await client.exactly(min(client.left, FIRST_BYTES))
                if _acks(head, version) != 0:
                    self._pending.append(pending)
            else:
                self._pending.append(pending)
            broker.write(_INT32.pack(size) + head)
            await client.pipe(client.left, broker)
            await broker.flush()

    async def _refuse_produce(self, pending: Pending) -> None:
        answer = await refused_produce(self._client, pending.version, pending.correlation)
        self._parts.counts.refused["Produce"] += 1
        if answer is None:
            raise Refused("this proxy is read-only, and the client waits for no answer", request="Produce")
        pending.answer = answer
        self._pending.append(pending)
        if len(self._pending) == 1:  # otherwise earlier requests are answered first
            await self._answer_ready()

    async def _answer_ready(self) -> None:
        """Send the proxy's own answers, until a pending request needs the broker's answer."""
        while self._pending and (answer := self._pending[0].answer) is not None:
            await self._client.send(framed([answer]))
            self._pending.popleft()
            self._room.set()

    def _check(self, key: int, version: int) -> None:
        api = APIS.get(key)
        if key == Key.API_VERSIONS:
            return  # any version passes: a broker answers an unsupported version with its supported versions
        read_only = api is not None and api.changes and self._parts.read_only
        if api is None or not api.oldest <= version <= api.newest or read_only:
            name = f"api key {key}" if api is None else api.name
            self._parts.counts.refused[name] += 1
            why = "this proxy is read-only" if read_only else "a request that was not offered"
            raise Refused(why, request=name, version=version)

    async def _look_into(self, size: int, head: bytes, pending: Pending) -> None:
        with self._memory(size):
            data = bytearray(head + await self._client.exactly(size - len(head)))
            at = _body_at(data, APIS[pending.key].is_flexible(pending.version))
            match pending.key:
                case Key.FETCH:
                    pending.fetch = await self._read_fetch(data, at, pending.version)
                    await self._fetches.prepare(pending.fetch, data)
                case Key.SHARE_FETCH:
                    lower_share_fetch(data, at)
                case Key.LIST_OFFSETS | Key.DELETE_RECORDS | Key.OFFSET_FOR_LEADER_EPOCH if self._parts.whole_log:
                    pass  # the broker answers for both tiers
                case Key.LIST_OFFSETS:
                    pending.offsets = read_list_offsets(data, at, pending.version)
                case Key.DELETE_RECORDS:
                    pending.deletions = await self._parts.deletions.hold(data, at, pending.version)
                case Key.OFFSET_FOR_LEADER_EPOCH:
                    pending.epochs = read_epochs(data, at, pending.version)
                case Key.SASL_HANDSHAKE:
                    self._mechanism = Frame(data, at).string(False)
                    self._claimed = ""
                case Key.SASL_AUTHENTICATE if not self._claimed:
                    frame, flexible = Frame(data, at), pending.version >= 2
                    length = frame.length(flexible, short=False)
                    begin = frame.skip(max(0, length))
                    self._claimed = user_of(self._mechanism, bytes(data[begin : frame.at]))
            self._pending.append(pending)
            await self._broker.send([_INT32.pack(len(data)), data])

    async def _read_fetch(self, data: bytearray, at: int, version: int) -> FetchRequest:
        names = self._parts.names
        request = read_fetch(data, at, version, names.known)
        if request.unnamed:
            await names.learn(request.unnamed)
            request = read_fetch(data, at, version, names.known)
        return request

    # broker -> client

    async def _answers(self) -> None:
        broker, client = self._broker, self._client
        while (size := await broker.frame()) is not None:
            lead = await broker.exactly(4)
            if not self._pending:
                raise Malformed("the broker answered what nobody asked")
            pending = self._pending[0]
            if _INT32.unpack(lead)[0] != pending.correlation:
                raise Malformed("the broker answered another request", asked=pending.correlation)
            if pending.fetch is not None:
                await self._fetches.answer(size, lead, pending.fetch)
            elif pending.key == Key.METADATA:
                await self._metadata(size, lead, pending.version)
            elif (change := self._change_of(pending)) is None:
                client.write(_INT32.pack(size) + lead)
                await broker.pipe(broker.left, client)
                await client.flush()
            else:
                with self._memory(size):
                    whole = await broker.exactly(broker.left)
                    at = _answer_at(whole, pending)
                    await client.send(framed([lead, whole[:at], await change(whole[at:])]))
            if broker.left:
                raise Malformed("the broker's answer has more than its version says", left=broker.left)
            self._pending.popleft()  # only now: a refused Produce must not be answered while this answer is being sent
            self._room.set()
            await self._answer_ready()

    def _change_of(self, pending: Pending) -> Callable[[bytes], Awaitable[bytes | bytearray]] | None:
        """Return the function that changes the body of the answer, or None if the answer passes unchanged."""
        key, version, parts = pending.key, pending.version, self._parts
        if key in WITH_ADDRESSES:
            return partial(self._addresses, Key(key), version)
        if key == Key.PRODUCE and version >= PRODUCE_WITH_ADDRESSES:
            return partial(self._produced, version)
        if key == Key.API_VERSIONS:
            return partial(self._versions, version)
        if key == Key.SASL_AUTHENTICATE:
            return self._authenticated
        if pending.offsets is not None:
            return partial(parts.older.patch_offsets, pending.offsets, version)
        if pending.deletions is not None:
            return partial(parts.deletions.patch, pending.deletions, self._client.address, version)
        if pending.epochs is not None:
            return partial(parts.older.patch_epochs, pending.epochs, version)
        return None

    async def _metadata(self, size: int, lead: bytes, version: int) -> None:
        """Replace the addresses in a Metadata answer. The part after the brokers may be large, so it is streamed."""
        at, begin = await begun(self._broker, partial(addresses.read_brokers, version=version))
        header, brokers = begin[:at], begin[at:]
        changed = await self._addresses(Key.METADATA, version, brokers)
        self._client.write(_INT32.pack(size + len(changed) - len(brokers)) + lead + header + changed)
        await self._broker.pipe(self._broker.left, self._client)
        await self._client.flush()

    async def _addresses(self, key: Key, version: int, body: bytes) -> bytes:
        if key == Key.SHARE_FETCH and self._reads.are_logged:
            await self._log_share_reads(body)
        named = addresses.nodes(key, body, version)
        listeners = await self._parts.listeners.ensure({each.node: (each.host, each.port) for each in named})
        return addresses.rewritten(body, named, listeners, flexible=APIS[key].is_flexible(version))

    async def _log_share_reads(self, body: bytes) -> None:
        names = self._parts.names
        reads = [each for each in share_reads(Frame(body)) if each.size]
        await names.learn({each.topic_id for each in reads})
        for topic_id, partition, offset, size in reads:
            self._reads.saw((names.known.get(topic_id) or TopicId.of(topic_id), partition), "local", offset, size)

    async def _produced(self, version: int, body: bytes) -> bytearray:
        return without_addresses(body, version)

    async def _versions(self, version: int, body: bytes) -> bytes:
        return offered(body, version, read_only=self._parts.read_only)

    async def _authenticated(self, body: bytes) -> bytes:
        if Frame(body).int16() == codes.NONE:
            self._reads.user = self._claimed
        else:
            self._claimed = ""
        return body

    def _memory(self, size: int) -> Share:
        """Return memory for a frame to be parsed. Raises Refused if none is free, or if the frame is too large."""
        budget = self._parts.budget
        most = min(LARGEST_WHOLE, budget.size)
        if size > most:
            raise Refused("a frame that must be looked into is larger than proxy.memory allows", length=size, most=most)
        share = budget.for_a_frame(size)
        if share is None:
            raise Refused("no memory now for a frame that must be looked into", length=size, in_use=budget.used)
        return share


def _body_at(data: bytes | bytearray, flexible: bool) -> int:
    """Return the position at which a request's body begins."""
    frame = Frame(data, _HEADER.size)
    frame.raw_string(False)  # client id
    frame.tags(flexible)
    return frame.at


def _answer_at(body: bytes, pending: Pending) -> int:
    """Return the position of an answer's body. ApiVersions has no tagged fields in its header, in any version."""
    frame = Frame(body)
    frame.tags(pending.key != Key.API_VERSIONS and APIS[pending.key].is_flexible(pending.version))
    return frame.at


def _acks(head: bytes, version: int) -> int:
    """Return the ``acks`` of a Produce request."""
    flexible = APIS[Key.PRODUCE].is_flexible(version)
    frame = Frame(head, _body_at(head, flexible))
    frame.raw_string(flexible)  # transactional id
    return frame.int16()


NOBODY = ""
_SCRAM = re.compile(rb"[nyp][^,]*,[^,]*,n=([^,]*),")
_BEARER = re.compile(rb"auth=Bearer ([A-Za-z0-9_.~+/=-]+)", re.IGNORECASE)


def user_of(mechanism: str, message: bytes) -> str:
    """Return the user in the first message of ``mechanism``, or `NOBODY` if there is none or it cannot be read.

    PLAIN: RFC 4616. SCRAM: RFC 5802, 5.1. OAUTHBEARER: RFC 7628 with a JWT (RFC 7519), whose ``sub`` brokers use as the
    principal by default. The name is logged only after the broker has accepted the login.
    """
    if mechanism == "PLAIN":
        parts = message.split(b"\0")
        return parts[1].decode("utf-8", "replace") if len(parts) == 3 else NOBODY
    if mechanism.startswith("SCRAM-SHA-"):
        match = _SCRAM.match(message)
        name = match[1] if match else b""
        return name.replace(b"=2C", b",").replace(b"=3D", b"=").decode("utf-8", "replace")
    if mechanism == "OAUTHBEARER":
        match = _BEARER.search(message)
        subject = claims_of(match[1].decode()).get("sub") if match else None
        return subject if isinstance(subject, str) else NOBODY
    return NOBODY
