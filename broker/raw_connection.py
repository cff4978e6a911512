"""One connection to one broker. After its handshakes (API versions, SASL), it sends one request at a time.

Only this file, `raw.py` and `sasl.py` use kafka-python's internals: its frames and version tables.
"""

from __future__ import annotations

import struct
from typing import Any

from kafka.errors import IncompatibleBrokerVersion, KafkaError
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from ..runtime.clock import Clock
from ..state.errors import CorruptData, InvalidRequest
from .answer_memo import AnswerMemo
from .error_codes import error_of
from .framed_socket import FramedSocket
from .sasl import Login, exchange_of

CLIENT_ID = "tierstate"


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
            _raise(answer.error_code, request="ApiVersions")
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
        except (ValueError, IndexError, TypeError, KeyError, ArithmeticError, KafkaError) as error:
            raise CorruptData("the broker's answer cannot be read", request=type(request).__name__) from error
        if correlation_id != self._count:
            raise CorruptData("the broker answered another request", asked=self._count, answered=correlation_id)
        return answer

    def close(self) -> None:
        self._frames.close()

    def exchange(self, api_key: int, version: int, body: bytes, deadline: float) -> memoryview:
        """Send the body of a flexible request that kafka-python does not know, and return the answer's body.

        Raises InvalidRequest when the broker is too old; else as `ask`.
        """
        offered = self._versions.api_versions.get(api_key)
        if offered is None or not offered[0] <= version <= offered[1]:
            raise InvalidRequest("the broker does not know this request", api_key=api_key, version=version)
        self._count += 1
        name = CLIENT_ID.encode()
        head = struct.pack(">hhih", api_key, version, self._count, len(name)) + name + b"\0"
        self._frames.send(struct.pack(">i", len(head) + len(body)) + head + body, deadline)
        payload = self._frames.receive(deadline)
        if len(payload) < 5 or int.from_bytes(payload[:4], "big") != self._count or payload[4]:
            raise CorruptData("the broker answered another request", asked=self._count)
        return memoryview(payload)[5:]

    def _authenticate(self, login: Login, deadline: float) -> float:
        """Log in by SASL. Return the session's lifetime in seconds; 0: unlimited."""
        name = login.mechanism
        answer = self.ask(SaslHandshakeRequest(mechanism=name, version=1), deadline)
        _raise(answer.error_code, request="SaslHandshake", mechanism=name)
        exchange, over, lifetime = exchange_of(login), False, 0
        while not over:
            answer = self.ask(SaslAuthenticateRequest(exchange.say(), version=1), deadline)
            _raise(answer.error_code, request="SaslAuthenticate", mechanism=name)
            over = exchange.hear(bytes(answer.auth_bytes))
            lifetime = answer.session_lifetime_ms
        return lifetime / 1000


def _raise(code: int, **facts: object) -> None:
    error = error_of(code, **facts)
    if error is not None:
        raise error
