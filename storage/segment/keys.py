"""Object names of a copied segment: the only file that mints and parses them.

    <prefix><topic>-<topic id>/<partition>/<base offset, 20 digits>-<segment id><suffix>

``prefix`` stands in front verbatim, as Aiven's ``key.prefix`` does: no ``/`` is put behind it (``pfx`` gives
``pfxtopic-…``). It is part of the key. The prefix of a store's URL is not: the store adds it by itself (`open.py`).
Names are read from the right by fixed widths, because topics contain ``-`` and ids may begin with it. A Java process
with an Arabic or Persian locale writes its own digits: any decimal digit is read, only ASCII is written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from ...state.errors import InvalidRequest
from ...state.ids import RemoteSegmentId, TopicId, TopicIdPartition
from ...state.offsets import Offset
from ..object_store import checked_key

_ID = r"[A-Za-z0-9_-]{22}"
_TAIL = re.compile(rf"(?P<topic>.+)-(?P<topic_id>{_ID})/(?P<partition>\d+)/(?P<offset>\d{{20}})-(?P<segment_id>{_ID})")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Kafka's rule (`org.apache.kafka.common.internals.Topic`)."""


class ObjectKind(StrEnum):
    """The three objects of a segment, by suffix. The manifest commits."""

    LOG = ".log"
    INDEXES = ".indexes"
    MANIFEST = ".rsm-manifest"


@dataclass(frozen=True, slots=True)
class ParsedKey:
    """``base_key`` is the text of the key without the suffix, whatever its digits."""

    base_key: str
    kind: ObjectKind
    topic: str
    partition: TopicIdPartition
    base_offset: Offset
    segment_id: RemoteSegmentId


@dataclass(frozen=True, slots=True)
class ObjectKeys:
    """Names below one key prefix. Raises InvalidRequest for a prefix that no key can have."""

    prefix: str = ""

    def __post_init__(self) -> None:
        checked_key(f"{self.prefix}x")

    def base_key(
        self, topic: str, topic_id: TopicId, partition: int, base_offset: int, segment_id: RemoteSegmentId
    ) -> str:
        """The whole key without a suffix. Raises InvalidRequest."""
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise InvalidRequest("not a topic name", topic=repr(topic))
        if not 0 <= base_offset < 2**63:
            raise InvalidRequest("base offset out of range", base_offset=base_offset)
        place = TopicIdPartition(topic_id, partition)
        key = f"{self.prefix}{topic}-{place.topic_id}/{place.partition}/{base_offset:020d}-{segment_id}"
        checked_key(object_key(key, ObjectKind.MANIFEST))
        return key

    def topic_prefix(self, topic: str, topic_id: TopicId) -> str:
        """What every key of one topic begins with, and no key of another."""
        return f"{self.prefix}{topic}-{topic_id}/"

    def partition_prefix(self, topic: str, topic_id: TopicId, partition: int) -> str:
        """What every key of one partition begins with, and no key of another."""
        return f"{self.topic_prefix(topic, topic_id)}{partition}/"

    def parse(self, key: str) -> ParsedKey | None:
        """None for what is no object of a segment below this prefix."""
        kind = next((each for each in ObjectKind if key.endswith(each)), None)
        if kind is None or not key.startswith(self.prefix):
            return None
        base_key = key.removesuffix(kind)
        found = _TAIL.fullmatch(base_key, len(self.prefix)) if len(base_key) >= len(self.prefix) else None
        if not found or not _TOPIC.fullmatch(found["topic"]):
            return None
        partition, offset = int(found["partition"]), int(found["offset"])
        if len(str(partition)) != len(found["partition"]) or offset >= 2**63:
            return None
        try:
            place = TopicIdPartition(TopicId(found["topic_id"]), partition)
            segment_id = RemoteSegmentId(found["segment_id"])
        except InvalidRequest:
            return None
        return ParsedKey(base_key, kind, found["topic"], place, Offset(offset), segment_id)


def object_key(base_key: str, kind: ObjectKind) -> str:
    """The key of one of the three objects."""
    return f"{base_key}{kind}"


def base_of(key: str) -> str:
    """The base key, given itself or any of its three objects' keys."""
    kind = next((each for each in ObjectKind if key.endswith(each)), None)
    return key if kind is None else key.removesuffix(kind)
