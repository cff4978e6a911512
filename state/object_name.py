"""The name of a segment's objects, which identifies the segment. Only this file creates and parses such names.

    <anything><topic>-<topic id>/<partition>/<base offset, 20 digits>-<segment id>

`state/object_keys.py` handles the text before the name (prefix, salt) and after it (suffix). The name is parsed from
the right by fixed widths, because topics contain ``-`` and ids may begin with it. A Java process with an Arabic or
Persian locale writes its own digits: any decimal digit is accepted, only ASCII digits are written.

*A fact names its own objects only*: topic id, partition, base offset and segment id of the name are its segment's.
Without this rule, four facts of a plain producer made an agent delete the only copy of another topic. Code that reads,
deletes or moves objects that a fact names calls `not_own` right before, whatever a person settled earlier.
Objects with the names of another writer (adopted objects) would need their own kind of subject, with a `match` in
`not_own`. No fact can name such objects yet, and this file must never accept their names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import CorruptData, InvalidRequest
from .ids import RemoteSegmentId, TopicId, TopicIdPartition
from .offsets import Offset
from .segment import CopyAttempt, RemoteSegment

_ID = r"[A-Za-z0-9_-]{22}"
_NAME = re.compile(rf"(?P<topic>.+)-(?P<topic_id>{_ID})/(?P<partition>\d+)/(?P<offset>\d{{20}})-(?P<segment_id>{_ID})")


@dataclass(frozen=True, slots=True)
class ObjectName:
    """A parsed name. ``topic`` is all text before the topic id, so it may begin with a prefix of unknown length."""

    topic: str
    partition: TopicIdPartition
    base_offset: Offset
    segment_id: RemoteSegmentId

    @classmethod
    def parse(cls, base_key: str, start: int = 0) -> ObjectName | None:
        """Parse a key without its suffix, from ``start`` on. Returns None if it is not such a name."""
        match = _NAME.fullmatch(base_key, start) if start <= len(base_key) else None
        if match is None:
            return None
        partition, offset = int(match["partition"]), int(match["offset"])
        if len(str(partition)) != len(match["partition"]) or offset >= 2**63:
            return None
        try:
            place = TopicIdPartition(TopicId(match["topic_id"]), partition)
            segment_id = RemoteSegmentId(match["segment_id"])
        except InvalidRequest:
            return None
        return cls(match["topic"], place, Offset(offset), segment_id)

    def __str__(self) -> str:
        return f"{self.topic}{_behind_topic(self.partition, self.base_offset, self.segment_id)}"


def folder_name(topic: str, partition: TopicIdPartition) -> str:
    """Return the folder of a partition: the text with which each of its names begins."""
    return f"{topic}-{partition.topic_id}/{partition.partition}/"


def _behind_topic(partition: TopicIdPartition, base_offset: Offset, segment_id: RemoteSegmentId) -> str:
    return f"{folder_name('', partition)}{base_offset:020d}-{segment_id}"


def is_named_so(key: str, partition: TopicIdPartition, base_offset: Offset, segment_id: RemoteSegmentId) -> bool:
    """Return whether a key without its suffix names exactly this segment, whatever its prefix and topic name."""
    return key.endswith(_behind_topic(partition, base_offset, segment_id))


def not_own(subject: CopyAttempt | RemoteSegment) -> str | None:
    """Return how the object key of a fact contradicts its segment; None if the objects are the segment's own."""
    if is_named_so(subject.object_key, subject.partition, subject.offsets.start, subject.segment_id):
        return None
    return f"its object key is of another segment: {subject.object_key!r}"


def require_own(subject: CopyAttempt | RemoteSegment) -> None:
    """Raise CorruptData if a fact names objects that do not belong to its segment."""
    if not_own(subject) is not None:
        raise CorruptData(
            "a fact names objects of another segment: they stay untouched",
            partition=subject.partition,
            segment_id=subject.segment_id,
            offsets=subject.offsets,
            object_key=subject.object_key,
        )
