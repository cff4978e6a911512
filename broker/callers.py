"""The rights of other users on topics, as the brokers themselves report them.

tierstate logs in as the caller and requests Metadata with ``include_topic_authorized_operations`` (KIP-430). The answer
considers super users, custom authorizers, and prefixed and denying ACLs. If a caller was authenticated without a secret
that Kafka knows, tierstate creates a delegation token for it and logs in with the token (KIP-373; this needs
CreateTokens on that user). Only tokens are kept. Each request is a new login, so a deleted user is refused.
"""

from __future__ import annotations

import base64
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cachetools import LRUCache
from kafka.protocol.metadata import MetadataRequest

from ..runtime.clock import Clock
from ..state.errors import AccessDenied, BrokerUnavailable, CorruptData, InvalidRequest, TierstateError, TimedOut
from .answers import Address
from .caller_groups import read_groups_as
from .client_config import bootstrap_addresses
from .error_codes import error_of
from .framed_socket import FramedSocket, tls_context
from .groups import TopicGroups
from .kafka_access import access_of, own_login
from .raw_connection import RawConnection
from .sasl import DEFAULT_MECHANISM, OAUTHBEARER, Login, own_mechanism, speaks_sasl
from .wire import Frame, Malformed, length_of, string_of

R = TypeVar("R")
READ, DESCRIBE = 3, 8
"""Bits of ``topic_authorized_operations``: AclOperation's codes."""
CREATE_TOKEN, CREATE_TOKEN_VERSION = 38, 3
"""CreateDelegationToken; version 3 is the first that creates a token for another owner."""
TOKEN_S = 3600.0
TOKENS = 10_000
"""Tokens that are kept; the least recently used one is evicted."""
SETTLES_S = 2.0
"""Seconds until a new token has reached all brokers through their metadata log."""


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of one principal on one existing topic."""

    describe: bool = False
    read: bool = False


NONE = Rights()


def callers_of(kafka: Mapping[str, str], clock: Clock, brokers: Iterable[Address] = ()) -> Callers | None:
    """Return a `Callers`, or None without SASL: then brokers know no users."""
    return Callers(kafka, clock, tuple(brokers)) if speaks_sasl(kafka) else None


class Callers:
    """Thread-safe; blocking. A login and its request take at most ``timeout`` seconds for each broker that is tried."""

    def __init__(
        self, kafka: Mapping[str, str], clock: Clock, brokers: Sequence[Address] = (), timeout: float = 5.0
    ) -> None:
        """``kafka``: tierstate's own librdkafka properties. ``brokers``: addresses besides ``bootstrap.servers``."""
        self._kafka, self._clock, self._timeout = access_of(kafka), clock, timeout
        self._tls = tls_context(kafka)
        self._addresses = list(dict.fromkeys([*brokers, *bootstrap_addresses(kafka)]))
        self._tokens: LRUCache[str, tuple[float, Login]] = LRUCache(TOKENS)
        self._lock = threading.Lock()

    @property
    def mechanism(self) -> str:
        """The SASL mechanism of callers' passwords: that of tierstate's own password, if it has one."""
        own = own_mechanism(self._kafka)
        return own if own and own != OAUTHBEARER else DEFAULT_MECHANISM

    def rights(self, login: Login, topics: Sequence[str]) -> dict[str, Rights]:
        """Return this login's rights. Raises AccessDenied (refused), BrokerUnavailable, TimedOut (no answer)."""
        connection, deadline = self._connected(login)
        try:
            return _rights(connection, topics, deadline)
        finally:
            connection.close()

    def rights_of(self, user: str, topics: Sequence[str]) -> dict[str, Rights]:
        """Return the rights of ``User:<user>``. Raises AccessDenied if tierstate may not create a token for this user.

        Also raises InvalidRequest without SASL, CorruptData, and the errors of `rights`.
        """
        return self._as_user(user, lambda login: self.rights(login, topics))

    def groups(self, login: Login | None, topic: str, partitions: Sequence[int]) -> TopicGroups:
        """Return the groups that this login may DESCRIBE, and their offsets. ``login`` None: tierstate's own login.

        Raises as `rights`. If at least one broker answers, each broker that does not is a problem in the result.
        """
        own = own_login(self._kafka) if login is None else login
        return read_groups_as(lambda addresses: self._connected(own, addresses), topic, partitions)

    def groups_of(self, user: str, topic: str, partitions: Sequence[int]) -> TopicGroups:
        """Return `groups` of ``User:<user>``. Raises as `rights_of`."""
        return self._as_user(user, lambda login: self.groups(login, topic, partitions))

    def _as_user(self, user: str, ask: Callable[[Login], R]) -> R:
        with self._lock:
            made_until, login = self._tokens.get(user) or (0.0, None)
        if login is not None and self._clock.monotonic() < made_until:
            try:
                return ask(login)
            except AccessDenied:
                pass  # the token was revoked, or the brokers no longer know it
        until = self._clock.monotonic() + TOKEN_S / 2
        login = self._token_for(user)
        answer = self._until_settled(login, ask)
        with self._lock:
            self._tokens[user] = until, login
        return answer

    def _until_settled(self, login: Login, ask: Callable[[Login], R]) -> R:
        deadline = self._clock.monotonic() + SETTLES_S
        while True:
            try:
                return ask(login)
            except AccessDenied:
                if self._clock.monotonic() > deadline:
                    raise
            self._clock.sleep(0.02)

    def _token_for(self, user: str) -> Login:
        own = own_login(self._kafka)
        if own is None:
            raise InvalidRequest("without SASL to the brokers nobody can be asked for")
        connection, deadline = self._connected(own)
        owner = string_of(b"User", flexible=True) + string_of(user.encode(), flexible=True)
        renewers, ends = length_of(0, flexible=True), b"\0"
        try:
            body = owner + renewers + struct.pack(">q", int(TOKEN_S * 1000)) + ends
            answer = Frame(connection.exchange(CREATE_TOKEN, CREATE_TOKEN_VERSION, body, deadline))
            code, token_id, secret = _token_of(answer)
        except Malformed as error:
            raise CorruptData("the broker's answer cannot be read", request="CreateDelegationToken") from error
        finally:
            connection.close()
        if code:
            reason = error_of(code, request="CreateDelegationToken", user=user)
            raise AccessDenied("no delegation token can be made for this user", user=user, reason=reason or code)
        mechanism = own.mechanism if own.mechanism.startswith("SCRAM-") else DEFAULT_MECHANISM
        return Login(mechanism, token_id, base64.b64encode(secret).decode(), by_token=True)

    def _connected(
        self, login: Login | None, addresses: Sequence[Address] | None = None
    ) -> tuple[RawConnection, float]:
        """Return a connection to the first of ``addresses`` (None: all known ones) that answers, and its deadline."""
        failure: TierstateError = BrokerUnavailable("no broker is known")
        for address in self._addresses if addresses is None else addresses:
            deadline = self._clock.monotonic() + self._timeout
            try:
                frames = FramedSocket(address, self._tls, self._clock, deadline)
                return RawConnection(frames, login, self._clock, deadline), deadline
            except (BrokerUnavailable, TimedOut) as error:
                failure = error
        raise failure


def _token_of(answer: Frame) -> tuple[int, str, bytes]:
    """Return error code, token id and HMAC (CreateDelegationTokenResponse.json, version 3)."""
    code = answer.int16()
    for _ in range(4):  # owner and requester, a type and a name each
        answer.raw_string(flexible=True)
    for _ in range(3):  # timestamps: issue, expiry, latest expiry
        answer.int64()
    return code, answer.string(flexible=True), answer.raw_string(flexible=True) or b""


def _rights(connection: RawConnection, topics: Sequence[str], deadline: float) -> dict[str, Rights]:
    requests = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    request = MetadataRequest(
        topics=requests,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
        min_version=8,
        max_version=10,
    )
    rights = dict.fromkeys(topics, NONE)
    for each in connection.ask(request, deadline).topics:
        if each.error_code == 0 and each.name in rights:
            bits: set[int] = each.authorized_operations
            rights[each.name] = Rights(describe=not bits.isdisjoint((READ, DESCRIBE)), read=READ in bits)
    return rights
