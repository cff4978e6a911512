"""A node in place of brokers, for a proxy that reads the bucket alone. It leads every partition.

    client ── Relay ── socket pair ── Session      one session a connection, as with a broker

The node's log has no record: it begins and ends at the end of the remote tier. So it answers every lower offset with
OFFSET_OUT_OF_RANGE, and the relay adds remote records and older offsets as it does before brokers. Requests that change
anything are not offered. Logins are checked here, by the file of users (`principals.py`).
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.producer import ProduceRequest
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from ..broker.wire import Malformed
from ..runtime.clock import Clock
from ..runtime.pool import Pool
from ..state.errors import AccessDenied, TierstateError
from . import codes
from .apis import APIS, UNSUPPORTED_VERSION, Key
from .groups import GROUP_OFFERS, Call, Groups
from .peer import Peer
from .principals import ANONYMOUS, MECHANISMS, Exchange, exchange_of
from .replica_answers import OFFERS, Bucket

LARGEST = 4 << 20
"""The most bytes of a request. Those with records do not come here: the relay refuses them."""
LONGEST_WAIT_S = 5.0
DENIED_S = 0.1
"""Seconds before the answer to a refused login, as Kafka's ``connection.failed.authentication.delay.ms``."""
UNSUPPORTED_MECHANISM, NO_LOGIN_BEGUN, LOGIN_REFUSED = 33, 34, 58
_KINDS: dict[int, tuple[Any, int]] = {
    Key.PRODUCE: (ProduceRequest, APIS[Key.PRODUCE].newest),  # refused by the relay
    Key.API_VERSIONS: (ApiVersionsRequest, APIS[Key.API_VERSIONS].newest),
    Key.SASL_HANDSHAKE: (SaslHandshakeRequest, 1),
    Key.SASL_AUTHENTICATE: (SaslAuthenticateRequest, 2),
    **{key: offer[:2] for key, offer in OFFERS.items()},
    **{key: offer[:2] for key, offer in GROUP_OFFERS.items()},
}
OFFERED = {
    int(key): (kind, max(APIS[key].oldest, kind.valid_versions[0]), newest) for key, (kind, newest) in _KINDS.items()
}
"""The message, the oldest and the newest version of each request that is offered. No other is decoded."""
HEARTBEAT = APIS[Key.CONSUMER_GROUP_HEARTBEAT]
"""KIP-848's groups are refused by `_only_classic_groups`."""
_HEADER = struct.Struct(">hhi")
_INT32 = struct.Struct(">i")


class Replica:
    """The node. ``metadata``: threads for its answers. Used by the proxy's event loop only."""

    def __init__(self, bucket: Bucket, metadata: Pool, clock: Clock) -> None:
        self.bucket, self.metadata = bucket, metadata
        self.groups = Groups(bucket, metadata, clock)
        self._sessions: set[asyncio.Task[None]] = set()

    async def connected(self) -> Peer:
        """Return a new connection to the node. Raises OSError."""
        client, node = socket.socketpair()
        session = Session(self, *await asyncio.open_unix_connection(sock=node))
        task = asyncio.create_task(session.run())
        self._sessions.add(task)
        task.add_done_callback(self._ended)
        return (await asyncio.get_running_loop().create_unix_connection(Peer, sock=client))[1]

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._sessions.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:  # a bug in the proxy ends one connection
            self.bucket.warn("a connection ended by an error of the proxy", reason=repr(error))


class Session:
    """One connection to the node. Requests are answered one after the other."""

    def __init__(self, replica: Replica, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._bucket, self._metadata, self._groups = replica.bucket, replica.metadata, replica.groups
        self._reader, self._writer = reader, writer
        self._user = ANONYMOUS
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._over = False

    async def run(self) -> None:
        """Answer until the client leaves, or sends what it must not send."""
        try:
            while not self._over:
                (size,) = _INT32.unpack(await self._reader.readexactly(_INT32.size))
                if not _HEADER.size <= size <= LARGEST:
                    raise Malformed("a request is too large", length=size, most=LARGEST)
                self._writer.write(await self._answered(await self._reader.readexactly(size)))
                await self._writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client left
        except TierstateError as error:
            self._bucket.warn("a connection is closed", user=self._user, reason=str(error))
        finally:
            self._writer.close()

    async def _answered(self, frame: bytes) -> bytes:
        key, version, correlation = _HEADER.unpack_from(frame)
        if key == Key.API_VERSIONS and version > APIS[key].newest:
            return _encoded(_versions(UNSUPPORTED_VERSION), 0, correlation)
        if key == Key.CONSUMER_GROUP_HEARTBEAT:
            return _only_classic_groups(correlation)
        request = _decoded(key, version, frame)
        match key:
            case Key.API_VERSIONS:
                answer = _versions(codes.NONE)
            case Key.SASL_HANDSHAKE:
                answer = self._handshake(request.mechanism)
            case Key.SASL_AUTHENTICATE:
                answer = await self._authenticate(request.auth_bytes)
            case _:
                answer = await self._of_bucket(key, version, request)
        return _encoded(answer, version, correlation)

    async def _of_bucket(self, key: int, version: int, request: Any) -> Any:
        rights = self._bucket.rights
        if rights is not None and self._user == ANONYMOUS and not rights.lets_anonymous:
            raise AccessDenied("a request before the login", request=APIS[key].name)
        if (group_offer := GROUP_OFFERS.get(key)) is not None:
            return await group_offer.answer(self._groups, Call(self._user, version, request))

        def answered() -> Any:
            return OFFERS[key].answer(self._bucket, self._user, request)

        answer = await self._metadata.run(answered, goes_on=True)
        if key != Key.FETCH:
            return answer
        has_errors = any(each.error_code for topic in answer.responses for each in topic.partitions)
        if request.min_bytes > 0 and not has_errors:
            await asyncio.sleep(min(request.max_wait_ms / 1000, LONGEST_WAIT_S))
            answer = await self._metadata.run(answered, goes_on=True)
        return answer

    def _handshake(self, mechanism: str) -> Any:
        offered = [] if self._bucket.rights is None else [*MECHANISMS]
        self._exchange, code = None, UNSUPPORTED_MECHANISM
        if mechanism in offered:
            assert self._bucket.rights is not None
            self._exchange, code = exchange_of(mechanism, self._bucket.rights.password), codes.NONE
            next(self._exchange)
        return SaslHandshakeResponse(error_code=code, mechanisms=offered)

    async def _authenticate(self, message: bytes) -> Any:
        exchange = self._exchange
        if exchange is None:
            self._over = True
            return _authenticated(NO_LOGIN_BEGUN, "SaslHandshake comes first")
        try:
            reply, user = await self._metadata.run(lambda: exchange.send(message), goes_on=True)
        except AccessDenied as error:
            await asyncio.sleep(DENIED_S)
            self._over = True
            self._bucket.warn("a login is refused", reason=str(error))
            return _authenticated(LOGIN_REFUSED, error.message)
        if user is not None:
            self._user, self._exchange = user, None
        return _authenticated(codes.NONE, None, reply)


def _authenticated(code: int, message: str | None, reply: bytes = b"") -> Any:
    return SaslAuthenticateResponse(error_code=code, error_message=message, auth_bytes=reply, session_lifetime_ms=0)


def _versions(code: int) -> Any:
    kind = ApiVersionsResponse.ApiVersion
    ranges = {key: (oldest, newest) for key, (_, oldest, newest) in OFFERED.items()}
    ranges[HEARTBEAT.key] = HEARTBEAT.oldest, HEARTBEAT.newest
    keys = [kind(api_key=key, min_version=low, max_version=high) for key, (low, high) in sorted(ranges.items())]
    return ApiVersionsResponse(error_code=code, api_keys=keys)


def _only_classic_groups(correlation: int) -> bytes:
    """Return the answer of a broker without KIP-848. Clients then name the setting that they need; librdkafka waits for
    ever if the request is not offered. Fields: throttle, error, message, member, epoch, interval, no assignment, tags.
    """
    answer = struct.pack(">ibihbbiibb", correlation, 0, 0, UNSUPPORTED_VERSION, 0, 0, 0, 0, -1, 0)
    return _INT32.pack(len(answer)) + answer


def _decoded(key: int, version: int, frame: bytes) -> Any:
    kind, oldest, newest = OFFERED.get(key, (None, 0, 0))
    if kind is None or not oldest <= version <= newest:
        raise Malformed("a request that was not offered", request=APIS[key].name, version=version)
    try:
        return kind.decode(frame, version=version, header=True)
    except (ValueError, LookupError, struct.error, TypeError) as error:
        raise Malformed("a request cannot be read", request=APIS[key].name, reason=repr(error)) from error


def _encoded(answer: Any, version: int, correlation: int) -> bytes:
    answer.API_VERSION = version
    answer.with_header(correlation)
    return bytes(answer.encode(header=True, framed=True))
