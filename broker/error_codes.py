"""Kafka's error codes as tierstate's errors: one table, grouped by what the caller must do.

Numbers and meanings: Kafka's ``org.apache.kafka.common.protocol.Errors``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..state.errors import (
    AccessDenied,
    BrokerUnavailable,
    CorruptData,
    Fenced,
    InvalidRequest,
    NotTiered,
    Throttled,
    TierstateError,
    TimedOut,
    UnknownTopic,
)

if TYPE_CHECKING:
    from confluent_kafka import KafkaException

OFFSET_OUT_OF_RANGE = 1


class LeaderMoved(BrokerUnavailable):
    """This broker does not lead the partition, or does not lead it yet. Request the metadata again."""


_MOVED = {
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    8: "BROKER_NOT_AVAILABLE",
    9: "REPLICA_NOT_AVAILABLE",
    75: "UNKNOWN_LEADER_EPOCH",  # the broker does not know the requested epoch yet
    78: "OFFSET_NOT_AVAILABLE",  # a new leader that does not know its high watermark yet
}
_UNAVAILABLE = {-1: "UNKNOWN_SERVER_ERROR", 13: "NETWORK_EXCEPTION", 14: "COORDINATOR_LOAD_IN_PROGRESS"}
_UNAVAILABLE |= {15: "COORDINATOR_NOT_AVAILABLE", 16: "NOT_COORDINATOR", 56: "KAFKA_STORAGE_ERROR"}
_UNKNOWN = {3: "UNKNOWN_TOPIC_OR_PARTITION", 17: "INVALID_TOPIC_EXCEPTION", 100: "UNKNOWN_TOPIC_ID"}
_UNKNOWN |= {103: "INCONSISTENT_TOPIC_ID"}
_DENIED = {29: "TOPIC_AUTHORIZATION_FAILED", 30: "GROUP_AUTHORIZATION_FAILED", 31: "CLUSTER_AUTHORIZATION_FAILED"}
_DENIED |= {33: "UNSUPPORTED_SASL_MECHANISM", 34: "ILLEGAL_SASL_STATE", 58: "SASL_AUTHENTICATION_FAILED"}


def error_of(code: int, **facts: object) -> TierstateError | None:
    """Return the error of a code; None for 0. Callers handle OFFSET_OUT_OF_RANGE before: its error needs a range."""
    tables: list[tuple[dict[int, str], type[TierstateError], str]] = [
        (_MOVED, LeaderMoved, "the broker does not lead this partition now"),
        (_UNAVAILABLE, BrokerUnavailable, "the broker cannot answer now"),
        (_UNKNOWN, UnknownTopic, "no such topic or partition"),
        (_DENIED, AccessDenied, "the broker refuses these credentials"),
        ({74: "FENCED_LEADER_EPOCH"}, Fenced, "a newer leader epoch exists"),
        ({7: "REQUEST_TIMED_OUT"}, TimedOut, "the broker did not finish in time"),
        ({89: "THROTTLING_QUOTA_EXCEEDED"}, Throttled, "the broker asks to slow down"),
        ({2: "CORRUPT_MESSAGE"}, CorruptData, "the broker found corrupt records in its log"),
        ({44: "POLICY_VIOLATION"}, NotTiered, "the topic's policy forbids this"),
    ]
    if code == 0:
        return None
    for names, kind, message in tables:
        if code in names:
            return kind(message, **facts, kafka_error=names[code])
    return InvalidRequest("the broker refuses this request", **facts, kafka_error=code)


def check(code: int, **facts: object) -> None:
    """Raise the error of a code, unless the code is 0."""
    error = error_of(code, **facts)
    if error is not None:
        raise error


def denied(error: Any, **facts: object) -> AccessDenied | None:
    """Return AccessDenied if an error of librdkafka (KafkaError, KafkaException) means that; else None."""
    from confluent_kafka import KafkaException  # imported here, as a Spark executor does not need it

    cause = error.args[0] if isinstance(error, KafkaException) else error
    converted = error_of(cause.code(), **facts)
    return converted if isinstance(converted, AccessDenied) else None


def error_of_exception(exception: KafkaException, **facts: object) -> TierstateError:
    """Convert librdkafka's exception. Its code is Kafka's if a broker answered, and negative if none answered."""
    from confluent_kafka import KafkaError  # imported here, as a Spark executor does not need it

    cause = exception.args[0]
    local = {
        KafkaError._TIMED_OUT: TimedOut("Kafka does not answer in time", **facts),
        KafkaError._AUTHENTICATION: AccessDenied("Kafka refuses these credentials", **facts, reason=cause.str()),
    }
    if cause.code() in local:
        return local[cause.code()]
    error = error_of(cause.code(), **facts) if cause.code() > 0 else None
    return error or BrokerUnavailable("Kafka cannot be reached", **facts, reason=cause.str())
