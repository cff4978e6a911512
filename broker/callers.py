"""What somebody else may do with topics, as the brokers themselves say.

A connection is opened as the caller, and Metadata is asked with ``include_topic_authorized_operations`` (KIP-430):
super users, custom authorizers, prefixed and denying bindings are all in the answer. Who has no secret that Kafka
knows, but was found out otherwise, gets a delegation token from us (KIP-373; needs CreateTokens on that user), and is
asked for by it. Nothing is kept but tokens; each question is a login of its own, so one who was deleted is refused.
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
from .kafka_access import access_of
from .raw_connection import RawConnection
from .sasl import DEFAULT_MECHANISM, Login, own_login, speaks_sasl
from .wire import Frame, Malformed, length_of, string_of

R = TypeVar("R")
READ, DESCRIBE = 3, 8
"""Bits of ``topic_authorized_operations``: AclOperation's codes."""
CREATE_TOKEN, CREATE_TOKEN_VERSION = 38, 3
"""CreateDelegationToken; from version 3 on for another owner."""
TOKEN_S = 3600.0
TOKENS = 10_000
"""Remembered; the one unused longest is made anew."""
SETTLES_S = 2.0
"""A token that was just made reaches all brokers by their metadata log."""


@dataclass(frozen=True, slots=True)
class Rights:
    """Of one principal to one topic that is there."""

    describe: bool = False
    read: bool = False


NONE = Rights()


def callers_of(kafka: Mapping[str, str], clock: Clock, known: Iterable[Address] = ()) -> Callers | None:
    """None: brokers without SASL know no users."""
    return Callers(kafka, clock, tuple(known)) if speaks_sasl(kafka) else None


class Callers:
    """Thread-safe, blocking; a call takes ``timeout`` seconds at most for each broker it tries."""

    def __init__(
        self, kafka: Mapping[str, str], clock: Clock, known: Sequence[Address] = (), timeout: float = 5.0
    ) -> None:
        """``kafka``: our own properties, librdkafka's names. ``known``: brokers beside the bootstrap ones."""
        self._kafka, self._clock, self._timeout = access_of(kafka), clock, timeout
        self._tls = tls_context(kafka)
        self._addresses = list(dict.fromkeys([*known, *bootstrap_addresses(kafka)]))
        self._tokens: LRUCache[str, tuple[float, Login]] = LRUCache(TOKENS)
        self._lock = threading.Lock()

    @property
    def mechanism(self) -> str:
        """Our own, of SASL."""
        own = own_login(self._kafka)
        return DEFAULT_MECHANISM if own is None else own.mechanism

    def rights(self, login: Login, topics: Sequence[str]) -> dict[str, Rights]:
        """Of who logs in so. AccessDenied: the login is refused. BrokerUnavailable, TimedOut: nobody answers."""
        connection, deadline = self._connected(login)
        try:
            return _rights(connection, topics, deadline)
        finally:
            connection.close()

    def rights_of(self, user: str, topics: Sequence[str]) -> dict[str, Rights]:
        """Of ``User:<user>``. AccessDenied: we may make no token for it. Else as `rights`."""
        return self._as_user(user, lambda login: self.rights(login, topics))

    def groups(self, login: Login | None, topic: str, partitions: Sequence[int]) -> TopicGroups:
        """The groups that who logs in so may DESCRIBE, and what they committed. ``login`` None: as we do ourselves.

        Raises as `rights`. A broker that does not answer is a problem of the answer, while another one does.
        """
        own = own_login(self._kafka) if login is None else login
        return read_groups_as(lambda addresses: self._connected(own, addresses), topic, partitions)

    def groups_of(self, user: str, topic: str, partitions: Sequence[int]) -> TopicGroups:
        """`groups` of ``User:<user>``. Raises as `rights_of`."""
        return self._as_user(user, lambda login: self.groups(login, topic, partitions))

    def _as_user(self, user: str, ask: Callable[[Login], R]) -> R:
        with self._lock:
            made_until, login = self._tokens.get(user) or (0.0, None)
        if login is not None and self._clock.monotonic() < made_until:
            try:
                return ask(login)
            except AccessDenied:
                pass  # it was taken back, or it is forgotten
        until = self._clock.monotonic() + TOKEN_S / 2
        login = self._token_for(user)
        found = self._until_settled(login, ask)
        with self._lock:
            self._tokens[user] = until, login
        return found

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
        """With the first of ``addresses`` that answers; None: of all that are known."""
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
    """Error code, token id and HMAC (CreateDelegationTokenResponse.json, version 3)."""
    code = answer.int16()
    for _ in range(4):  # owner, and who asked
        answer.raw_string(flexible=True)
    for _ in range(3):  # issued, expires, at the latest
        answer.int64()
    return code, answer.string(flexible=True), answer.raw_string(flexible=True) or b""


def _rights(connection: RawConnection, topics: Sequence[str], deadline: float) -> dict[str, Rights]:
    wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    request = MetadataRequest(
        topics=wanted,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
        min_version=8,
        max_version=10,
    )
    found = dict.fromkeys(topics, NONE)
    for each in connection.ask(request, deadline).topics:
        if each.error_code == 0 and each.name in found:
            bits: set[int] = each.authorized_operations
            found[each.name] = Rights(describe=not bits.isdisjoint((READ, DESCRIBE)), read=READ in bits)
    return found
