"""Identities. Each is text as Kafka prints it; equal text is equal identity.

Kafka's UUIDs are 16 bytes, printed as 22 characters of base64url without padding (`org.apache.kafka.common.Uuid`).
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import NewType, Self

from .errors import InvalidRequest

BrokerId = NewType("BrokerId", int)
RECOVERER = BrokerId(-1)
"""The broker that facts of a recovery name: none."""
"""Kafka's ``node.id``."""


_UUID = re.compile("[A-Za-z0-9_-]{21}[AQgw]")
"""The last character carries two bits: with any other one, two texts would mean the same 16 bytes."""


class KafkaUuid(str):
    """16 bytes as 22 characters of base64url."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        if _UUID.fullmatch(text) is None:
            raise InvalidRequest(f"not a {cls.__name__}: 22 characters of base64url expected", text=repr(text))
        return str.__new__(cls, text)

    @classmethod
    def of(cls, raw: bytes) -> Self:
        """From the 16 bytes, most significant first."""
        return cls(base64.urlsafe_b64encode(raw)[:22].decode())

    @property
    def raw(self) -> bytes:
        return base64.urlsafe_b64decode(self + "==")


class TopicId(KafkaUuid):
    """A topic, for its whole life: a topic re-created under the same name has another id."""


class RemoteSegmentId(KafkaUuid):
    """One attempt to copy one log segment. Never reused."""


class FactId(KafkaUuid):
    """The fresh part ``N`` of a key: an identity of a term, an order, a lease, a hold."""


@dataclass(frozen=True, slots=True, order=True)
class TopicIdPartition:
    """A partition, by topic id. Topic names are for people and are carried beside it, never compared."""

    topic_id: TopicId
    partition: int

    def __post_init__(self) -> None:
        if not 0 <= self.partition < 2**31:
            raise InvalidRequest("partition number out of range", partition=self.partition)

    def __str__(self) -> str:
        return f"{self.topic_id}-{self.partition}"

    def named(self, topic: str | None) -> str:
        """As Kafka writes it, ``orders-0``; by its id where nobody knows the name."""
        return f"{topic or self.topic_id}-{self.partition}"
