"""One blocking connection to a broker that sends and receives frames, with TLS and a deadline for every call."""

from __future__ import annotations

import re
import socket
import ssl
import struct
from collections.abc import Callable, Mapping

from ..runtime.clock import Clock
from ..runtime.live_tls import LiveTls
from ..state.errors import AccessDenied, BrokerUnavailable, CorruptData, InvalidRequest, TimedOut
from .kafka_access import tls_files

LARGEST_FRAME = 1 << 30
"""Bytes. Brokers limit answers to the requested size, except for one larger batch; this limits their mistakes."""
FIRST_FRAME = 1 << 20
"""The largest first frame, in bytes. The answer to ApiVersions is far smaller. Before it, the peer may be no broker."""
FOREIGN = {b"\x15\x03": "TLS is spoken here: set security.protocol", b"HT": "HTTP is spoken here, not Kafka"}
"""The protocol that another peer uses, by its answer's first bytes: a TLS alert (RFC 8446, 5.1 and 6), or ``HTTP/1.1
400``. As lengths of a frame, these bytes would mean 336 MiB and 1.1 GiB."""
_CERTIFICATE_ALERT = re.compile("ALERT_.*(CERTIFICATE|UNKNOWN_CA|ACCESS_DENIED)")


class FramedSocket:
    """Kafka's framing: four bytes of length (big-endian), then the payload. One thread at a time."""

    def __init__(self, address: tuple[str, int], tls: ssl.SSLContext | None, clock: Clock, deadline: float) -> None:
        """``deadline``: a time of ``clock.monotonic()``. Raises BrokerUnavailable, TimedOut, AccessDenied (TLS)."""
        self._name = f"{address[0]}:{address[1]}"
        self._clock, self._is_kafka = clock, False
        try:
            self._socket = socket.create_connection(address, timeout=self._remaining(deadline))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket.settimeout(self._remaining(deadline))
                self._socket = tls.wrap_socket(self._socket, server_hostname=address[0])
        except TimeoutError as error:
            raise TimedOut("the broker does not accept connections in time", address=self._name) from error
        except ssl.SSLCertVerificationError as error:
            raise AccessDenied("the broker's certificate is not trusted", address=self._name, reason=error) from error
        except OSError as error:
            if _refuses_certificate(error):
                raise AccessDenied("the broker refuses our certificate", address=self._name, reason=error) from error
            raise BrokerUnavailable("no connection to the broker", address=self._name, reason=error) from error

    def send(self, frame: bytes, deadline: float) -> None:
        """Send a complete frame, with its length. Raises BrokerUnavailable or TimedOut: then part may have arrived."""
        try:
            self._socket.settimeout(self._remaining(deadline))
            self._socket.sendall(frame)
        except TimeoutError as error:
            raise TimedOut("the broker does not read in time", address=self._name) from error
        except OSError as error:
            raise BrokerUnavailable("the connection broke", address=self._name, reason=error) from error

    def dies_at(self, deadline: float) -> None:
        """Let nothing that was sent arrive long after the deadline. Raises TimedOut if it has passed.

        The kernel gives up bytes that the peer did not acknowledge by then, and a close discards what is left.
        """
        try:
            left_ms = max(1, int(self._remaining(deadline) * 1000))
        except TimeoutError as error:
            raise TimedOut("the deadline passed", address=self._name) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, left_ms)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def receive(self, deadline: float, kind: Callable[[int], bytearray] = bytearray) -> bytearray:
        """Return the payload of the next frame, in a buffer that ``kind`` creates.

        Raises BrokerUnavailable (also if the peer is no broker), TimedOut, and CorruptData for a length that no broker
        sends.
        """
        first = self._exactly(bytearray(4), deadline)
        (length,) = struct.unpack(">i", first)
        if not self._is_kafka and not 0 <= length <= FIRST_FRAME:
            why = FOREIGN.get(bytes(first[:2]), "what answers here is no Kafka broker")
            raise BrokerUnavailable(why, address=self._name)
        if not 0 <= length <= LARGEST_FRAME:
            raise CorruptData("the broker sent a frame of an impossible length", address=self._name, length=length)
        payload = self._exactly(kind(length), deadline)
        self._is_kafka = True
        return payload

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, payload: bytearray, deadline: float) -> bytearray:
        rest = memoryview(payload)
        try:
            while rest:
                self._socket.settimeout(self._remaining(deadline))
                received = self._socket.recv_into(rest)
                if received == 0:
                    raise BrokerUnavailable("the broker closed the connection", address=self._name)
                rest = rest[received:]
        except TimeoutError as error:
            raise TimedOut("the broker does not answer in time", address=self._name) from error
        except OSError as error:
            if not self._is_kafka and _refuses_certificate(error):  # TLS 1.3 reports it after the handshake
                raise AccessDenied("the broker refuses our certificate", address=self._name, reason=error) from error
            raise BrokerUnavailable("the connection broke", address=self._name, reason=error) from error
        return payload

    def _remaining(self, deadline: float) -> float:
        remaining = deadline - self._clock.monotonic()
        if remaining <= 0:
            raise TimeoutError("the deadline passed")
        return remaining


def _refuses_certificate(error: OSError) -> bool:
    return isinstance(error, ssl.SSLError) and _CERTIFICATE_ALERT.search(error.reason or "") is not None


def tls_context(kafka: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return a TLS context from librdkafka's ``ssl.*`` properties. Returns None if ``security.protocol`` has no TLS.

    The context follows changes of its files. Raises InvalidRequest if the files cannot be read."""
    if "ssl" not in kafka.get("security.protocol", "plaintext").lower():
        return None
    return LiveTls(lambda: _context(kafka), tls_files(kafka))


def _context(kafka: Mapping[str, str]) -> ssl.SSLContext:
    authorities = kafka.get("ssl.ca.location")
    try:
        context = ssl.create_default_context()
        if authorities and authorities != "probe":
            context = ssl.create_default_context(cafile=authorities)
        if kafka.get("ssl.certificate.location"):
            own = kafka["ssl.certificate.location"], kafka.get("ssl.key.location"), kafka.get("ssl.key.password")
            context.load_cert_chain(*own)
    except (OSError, ssl.SSLError) as error:
        raise InvalidRequest("the TLS files of [kafka] cannot be read", reason=error) from error
    if kafka.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    if kafka.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
