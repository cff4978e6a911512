"""One connection to one broker. After its handshakes (API versions, SASL), it sends one request at a time.

Only this file, `raw.py` and `sasl.py` use kafka-python's internals: its frames and version tables.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from kafka.errors import IncompatibleBrokerVersion, KafkaError
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from ..runtime.clock import Clock
from ..state.errors import CorruptData, InvalidRequest
from .error_codes import check
from .framed_socket import FramedSocket
from .sasl import Login, exchange_of

V = TypeVar("V")
CLIENT_ID = "tierstate"
_CLIENT = CLIENT_ID.encode()
_HEADER = struct.Struct(f">ihhih{len(_CLIENT)}s")
"""Length of the frame, and a request header of version 1."""
KEPT = 8
"""The most answers kept. A cluster's brokers give equal answers, except that each may name another controller."""


class AnswerMemo(Generic[V]):
    """The last few answers to one kind of request. Thread-safe. Equal bytes give the same object, decoded only once.

    On a quiet cluster, brokers repeat the metadata of all topics byte for byte. Decoding those of 2,000 partitions
    takes 50 ms; comparing their bytes takes 20 µs.
    """

    def __init__(self, kind: Callable[[object], V]) -> None:
        """``kind`` converts a decoded answer to the value that is kept."""
        self._kind = kind
        self._values: dict[bytes, V] = {}

    def of(self, body: bytes, decode: Callable[[bytes], object]) -> V:
        """Return the value of an answer, decoded only if its bytes are new. Raises the errors of ``decode``."""
        values = self._values
        value = values.get(body)
        if value is None:
            value = self._kind(decode(body))
            kept = dict(list(values.items())[1 - KEPT :])
            self._values = {**kept, body: value}
        return value


class RawConnection:
    """A connection whose handshakes are done. ``good_until``: the monotonic time until which it may be reused."""

    def __init__(self, frames: FramedSocket, login: Login | None, clock: Clock, deadline: float) -> None:
        """Do the handshakes. An error closes ``frames``. ``login`` None: no login. Raises AccessDenied, or as `ask`."""
        self._frames = frames
        self._count = 0
        self._versions: Any = None
        self.good_until = float("inf")
        try:
            answer = self.ask(
                ApiVersionsRequest(version=3, client_software_name=CLIENT_ID, client_software_version="0"), deadline
            )
            check(answer.error_code, request="ApiVersions")
            keys = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
            self._versions = BrokerVersionData(api_versions=keys)
            if login is not None:
                lifetime = self._authenticate(login, deadline)
                self.good_until = clock.monotonic() + 0.8 * lifetime if lifetime else float("inf")
        except BaseException:
            frames.close()
            raise

    def dies_at(self, deadline: float) -> None:
        """Let no request arrive long after ``deadline`` (`FramedSocket.dies_at`)."""
        self._frames.dies_at(deadline)

    def ask(self, request: Any, deadline: float, memo: AnswerMemo[Any] | None = None) -> Any:
        """Return the answer. Raises BrokerUnavailable, TimedOut, CorruptData, InvalidRequest (broker too old)."""
        self._count += 1
        try:
            if request.API_VERSION is None:
                request.API_VERSION = self._versions.api_version(request)
            request.with_header(correlation_id=self._count, client_id=CLIENT_ID)
            frame = request.encode(framed=True, header=True)
        except IncompatibleBrokerVersion as error:
            raise InvalidRequest("the broker does not know this request", request=type(request).__name__) from error
        self._frames.send(frame, deadline)
        payload: Any = self._frames.receive(deadline, KafkaBytes)
        try:
            kind = request.header.get_response_class()
            correlation_id = kind.parse_header(payload).correlation_id
            body = memoryview(payload)[payload.tell() :]
            answer = (
                kind.decode(body) if memo is None else memo.of(bytes(body), lambda same: kind.decode(memoryview(same)))
            )
        except (ValueError, IndexError, TypeError, KeyError, ArithmeticError, struct.error, KafkaError) as error:
            raise CorruptData("the broker's answer cannot be read", request=type(request).__name__) from error
        if correlation_id != request.header.correlation_id:
            raise CorruptData(
                "the broker answered another request", asked=request.header.correlation_id, answered=correlation_id
            )
        return answer

    def post_encoded(self, api_key: int, version: int, body: bytes, deadline: float) -> int:
        """Send a request of this version, with a header of version 1. Return the id for `encoded_answer`. Raises as
        `ask`.
        """
        lowest, highest = self._versions.api_versions.get(api_key, (0, -1))
        if not lowest <= version <= highest:
            raise InvalidRequest("the broker does not know this request", api_key=api_key, version=version)
        self._count += 1
        head = _HEADER.pack(_HEADER.size - 4 + len(body), api_key, version, self._count, len(CLIENT_ID), _CLIENT)
        self._frames.send(head + body, deadline)
        return self._count

    def encoded_answer(self, correlation_id: int, deadline: float) -> memoryview:
        """Return the answer, without its header, to the first posted request without one. Raises as `ask`."""
        payload = self._frames.receive(deadline)
        answered = int.from_bytes(payload[:4], "big")
        if answered != correlation_id:
            raise CorruptData("the broker answered another request", asked=correlation_id, answered=answered)
        return memoryview(payload)[4:]

    def close(self) -> None:
        self._frames.close()

    def _authenticate(self, login: Login, deadline: float) -> float:
        """Log in by SASL. Return the session's lifetime in seconds; 0: unlimited."""
        name = login.mechanism
        answer = self.ask(SaslHandshakeRequest(mechanism=name, version=1), deadline)
        check(answer.error_code, request="SaslHandshake", mechanism=name)
        exchange = exchange_of(login)
        with suppress(StopIteration):
            message = next(exchange)
            while True:
                answer = self.ask(SaslAuthenticateRequest(message, version=1), deadline)
                check(answer.error_code, request="SaslAuthenticate", mechanism=name)
                message = exchange.send(bytes(answer.auth_bytes))
        return float(answer.session_lifetime_ms) / 1000
