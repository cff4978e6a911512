"""Identifiers. Each identifier is text, as Kafka prints it. Equal text means an equal identifier.

Kafka's UUIDs are 16 bytes, printed as 22 characters of base64url without padding (`org.apache.kafka.common.Uuid`).
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import NewType, Self

from .errors import InvalidRequest

BrokerId = NewType("BrokerId", int)
"""Kafka's ``node.id``."""
COPIER = BrokerId(2**31 - 1)
"""Stands for the agents that copy by Fetch, which are beside no broker."""
RECOVERER = BrokerId(-1)
"""The broker id in facts that a recovery writes; no broker has it."""


def writer_of(broker_id: int) -> str:
    """Return what people call the writer of a fact or a heartbeat with this broker id."""
    if broker_id < 0:
        return "a command"
    return "an agent by Fetch" if broker_id == COPIER else f"broker {broker_id}"


_UUID = re.compile("[A-Za-z0-9_-]{21}[AQgw]")
"""The last character carries two bits. Any other last character would give the same 16 bytes a second text."""


class KafkaUuid(str):
    """A UUID: 16 bytes as 22 characters of base64url. Raises InvalidRequest for other text."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        if _UUID.fullmatch(text) is None:
            raise InvalidRequest(f"not a {cls.__name__}: 22 characters of base64url expected", text=repr(text))
        return str.__new__(cls, text)

    @classmethod
    def of(cls, raw: bytes) -> Self:
        """Return the identifier of these 16 bytes, most significant first."""
        return cls(base64.urlsafe_b64encode(raw)[:22].decode())

    @property
    def raw(self) -> bytes:
        return base64.urlsafe_b64decode(self + "==")


class TopicId(KafkaUuid):
    """The id of a topic for its whole life: a topic re-created under the same name has another id."""


class RemoteSegmentId(KafkaUuid):
    """The id of one attempt to copy one log segment. It is never reused."""


class FactId(KafkaUuid):
    """The unique part ``N`` of a key, which identifies a term, an order, a lease or a hold."""


@dataclass(frozen=True, slots=True, order=True)
class TopicIdPartition:
    """A partition, by topic id. Topic names are for people: they are stored separately and never compared."""

    topic_id: TopicId
    partition: int

    def __post_init__(self) -> None:
        if not 0 <= self.partition < 2**31:
            raise InvalidRequest("partition number out of range", partition=self.partition)

    def __str__(self) -> str:
        return f"{self.topic_id}-{self.partition}"

    def named(self, topic: str | None) -> str:
        """Return the name as Kafka writes it, ``orders-0``, with the topic id if ``topic`` is None."""
        return f"{topic or self.topic_id}-{self.partition}"
