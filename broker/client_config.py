"""The properties of every Kafka client, in one place. ``[kafka]`` settings pass through as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError

from ..state.errors import InvalidRequest
from .answers import Address
from .kafka_access import librdkafka_properties

RECONNECT_MS = 20
"""Milliseconds until a broken connection is retried; librdkafka doubles them up to ``reconnect.backoff.max.ms``, 10 s.

A new client also waits half of this time between its first and second connection (``sparse_connect_intvl``). With
librdkafka's default of 100, every other client waited 50 ms (seen, 2.16), and a command opens several clients.
"""


def admin_config(kafka: Mapping[str, str]) -> dict[str, Any]:
    """Return the properties of an AdminClient. All other clients have these properties, too.

    Raises the errors of `librdkafka_properties`."""
    ours = {"client.id": "tierstate", "socket.timeout.ms": 10_000, "reconnect.backoff.ms": RECONNECT_MS}
    return {**ours, **librdkafka_properties(kafka), "log_level": 0}


def producer_config(kafka: Mapping[str, str], delivery_timeout_s: float) -> dict[str, Any]:
    """Return the properties of a producer of facts: ``acks=all``, and no fact is silently reordered or repeated."""
    return {
        **admin_config(kafka),
        "enable.idempotence": True,
        "acks": "all",
        "linger.ms": 1,
        "compression.type": "none",
        "delivery.timeout.ms": int(delivery_timeout_s * 1000),
        "request.timeout.ms": min(10_000, int(delivery_timeout_s * 1000)),
    }


def consumer_config(kafka: Mapping[str, str]) -> dict[str, Any]:
    """Return the properties of an assigned consumer. librdkafka needs a group id, but the consumer joins no group."""
    return {
        **admin_config(kafka),
        "group.id": "tierstate-by-assignment",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_uncommitted",
        "enable.partition.eof": True,
        "check.crcs": True,
        "fetch.wait.max.ms": 100,
        "fetch.queue.backoff.ms": 5,
        "allow.auto.create.topics": False,
    }


OWN_CERTIFICATE = ("ssl.certificate.location", "ssl.key.location", "ssl.key.password")


def in_their_name(kafka: Mapping[str, str]) -> dict[str, str]:
    """Return the properties for a connection with a caller's login: without tierstate's certificate, except with SASL.

    With TLS alone the certificate is the principal: every caller would have tierstate's rights. With SASL over TLS the
    principal is the user that logs in, and a certificate only admits the connection (KIP-684).
    """
    by_login = kafka.get("security.protocol", "").lower() == "sasl_ssl"
    return {name: value for name, value in kafka.items() if by_login or name not in OWN_CERTIFICATE}


def is_of_groups(error: Any) -> bool:
    """Return whether the error concerns a group. A consumer that joins no group and commits nothing needs no right on a
    group, but librdkafka still looks up the coordinator and reports the refusal."""
    return bool(error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED)


def kafka_error(error: BaseException) -> str:
    """Return a short text for a KafkaException."""
    first = error.args[0] if error.args else error
    return first.str() if hasattr(first, "str") else f"{type(error).__name__} {error}".strip()


def bootstrap_addresses(kafka: Mapping[str, str]) -> list[Address]:
    """Return ``bootstrap.servers`` as (host, port); the port defaults to 9092. Raises InvalidRequest."""
    text = kafka.get("bootstrap.servers") or kafka.get("metadata.broker.list") or ""
    addresses = []
    for one in filter(None, (part.strip().rpartition("://")[2] for part in text.split(","))):
        host, colon, port = one.rpartition(":")
        if not colon or one.endswith("]"):
            host, port = one, "9092"
        if not port.isdigit() or not host:
            raise InvalidRequest("not a broker's address: host:port expected", address=one)
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise InvalidRequest("[kafka] has no bootstrap.servers")
    return addresses
