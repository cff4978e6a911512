"""One connection to one broker, past its handshakes: API versions, SASL; then one request and one answer at a time.

With `raw.py` the place that touches kafka-python's internals: its frames, version tables and SASL mechanisms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka.errors import IncompatibleBrokerVersion, KafkaError
from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from ..runtime.clock import Clock
from ..state.errors import AccessDenied, CorruptData, InvalidRequest
from .answer_memo import AnswerMemo
from .error_codes import error_of
from .framed_socket import FramedSocket

CLIENT_ID = "tierstate"


class RawConnection:
    """A connection that is past its handshakes."""

    def __init__(self, frames: FramedSocket, kafka: Mapping[str, str], clock: Clock, deadline: float) -> None:
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
            if "sasl" in kafka.get("security.protocol", "").lower():
                lifetime = self._authenticate(kafka, deadline)
                self.good_until = clock.monotonic() + 0.8 * lifetime if lifetime else float("inf")
        except BaseException:
            frames.close()
            raise

    def ask(self, request: Any, deadline: float, memo: AnswerMemo[Any] | None = None) -> Any:
        """One request, one answer. BrokerUnavailable, TimedOut, CorruptData, InvalidRequest (broker too old)."""
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

    def _authenticate(self, kafka: Mapping[str, str], deadline: float) -> float:
        """SASL; returns how long the session lasts in seconds, 0 for ever."""
        name = (kafka.get("sasl.mechanism") or kafka.get("sasl.mechanisms") or "").upper()
        if name not in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            raise InvalidRequest("raw reads know SASL PLAIN and SCRAM only", mechanism=name or "none set")
        answer = self.ask(SaslHandshakeRequest(mechanism=name, version=1), deadline)
        _raise(answer.error_code, request="SaslHandshake", mechanism=name)
        mechanism = get_sasl_mechanism(name)(
            sasl_mechanism=name,
            sasl_plain_username=kafka.get("sasl.username", ""),
            sasl_plain_password=kafka.get("sasl.password", ""),
        )
        lifetime = 0
        while not mechanism.is_done():
            answer = self.ask(SaslAuthenticateRequest(mechanism.auth_bytes(), version=1), deadline)
            _raise(answer.error_code, request="SaslAuthenticate", mechanism=name)
            try:
                mechanism.receive(answer.auth_bytes)
            except (ValueError, KafkaError) as error:
                raise AccessDenied("the broker did not prove that it knows the password", mechanism=name) from error
            lifetime = answer.session_lifetime_ms
        if not mechanism.is_authenticated():
            raise AccessDenied("SASL authentication failed", mechanism=name)
        return lifetime / 1000


def _raise(code: int, **facts: object) -> None:
    error = error_of(code, **facts)
    if error is not None:
        raise error
