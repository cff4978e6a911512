"""The rights of other users on topics, as the brokers themselves report them.

tierstate logs in as the caller and requests Metadata with ``include_topic_authorized_operations`` (KIP-430). The answer
considers super users, custom authorizers, and prefixed and denying ACLs. If a caller was authenticated without a secret
that Kafka knows, tierstate creates a delegation token for it and logs in with the token (KIP-373; this needs
CreateTokens on that user). Only tokens are kept. Each request is a new login, so a deleted user is refused.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from cachetools import LRUCache

from ..runtime.clock import Clock, repeated
from ..state.errors import AccessDenied, BrokerUnavailable, InvalidRequest, TierstateError, TimedOut
from .answers import Address, RawTopic, metadata_of
from .client_config import bootstrap_addresses
from .error_codes import error_of
from .framed_socket import FramedSocket, tls_context
from .groups import TopicGroups, read_groups_as
from .kafka_access import access_of, own_login
from .messages import CreateDelegationTokenRequest
from .raw import metadata_request
from .raw_connection import RawConnection
from .sasl import DEFAULT_MECHANISM, OAUTHBEARER, Login, own_mechanism, speaks_sasl

R = TypeVar("R")
READ, DESCRIBE = 3, 8
"""Bits of ``topic_authorized_operations``: AclOperation's codes."""
OTHER_OWNER = 3
"""The first version of CreateDelegationToken that creates a token for another owner."""
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

    def rights(self, who: Login | str, topics: Sequence[str]) -> dict[str, Rights]:
        """Return the rights of a login, or of ``User:<who>`` by a delegation token.

        Raises AccessDenied if the login is refused, or if tierstate may not create a token for this user. Also raises
        BrokerUnavailable or TimedOut without an answer, InvalidRequest without SASL, and CorruptData.
        """

        def ask(login: Login) -> dict[str, Rights]:
            connection, deadline = self._connected(login)
            with closing(connection):
                answer = metadata_of(connection.ask(metadata_request(topics, operations=True), deadline))
            return {name: _rights(answer.topics.get(name)) for name in topics}

        return ask(who) if isinstance(who, Login) else self._as_user(who, ask)

    def groups(self, who: Login | str | None, topic: str, partitions: Sequence[int]) -> TopicGroups:
        """Return the groups that ``who`` may DESCRIBE, and their offsets. ``who`` None: tierstate's own login.

        Raises as `rights`. If at least one broker answers, each broker that does not is a problem in the result.
        """

        def ask(login: Login | None) -> TopicGroups:
            return read_groups_as(lambda addresses: self._connected(login, addresses), topic, partitions)

        if isinstance(who, str):
            return self._as_user(who, ask)
        return ask(own_login(self._kafka) if who is None else who)

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
        answer = repeated(self._clock, partial(ask, login), (AccessDenied,), SETTLES_S, 0.02)
        with self._lock:
            self._tokens[user] = until, login
        return answer

    def _token_for(self, user: str) -> Login:
        own = own_login(self._kafka)
        if own is None:
            raise InvalidRequest("without SASL to the brokers nobody can be asked for")
        connection, deadline = self._connected(own)
        request = CreateDelegationTokenRequest(
            owner_principal_type="User",
            owner_principal_name=user,
            renewers=[],
            max_lifetime_ms=int(TOKEN_S * 1000),
            min_version=OTHER_OWNER,
        )
        with closing(connection):
            token = connection.ask(request, deadline)
        if (reason := error_of(token.error_code, request="CreateDelegationToken", user=user)) is not None:
            raise AccessDenied("no delegation token can be made for this user", user=user, reason=reason)
        mechanism = own.mechanism if own.mechanism.startswith("SCRAM-") else DEFAULT_MECHANISM
        return Login(mechanism, token.token_id, base64.b64encode(token.hmac).decode(), by_token=True)

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


def _rights(topic: RawTopic | None) -> Rights:
    if topic is None or topic.error is not None:
        return NONE
    return Rights(describe=not topic.operations.isdisjoint((READ, DESCRIBE)), read=READ in topic.operations)
