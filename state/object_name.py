"""The name of a segment's objects, which says whose they are: the only file that mints and parses it.

    <anything><topic>-<topic id>/<partition>/<base offset, 20 digits>-<segment id>

What stands in front of it (prefix, salt) and behind it (suffix) is `state/object_keys.py`'s. It is read from the
right by fixed widths, because topics contain ``-`` and ids may begin with it. A Java process with an Arabic or Persian
locale writes its own digits: any decimal digit is read, only ASCII is written.

*A fact speaks of its own objects only*: topic id, partition, base offset and segment id of the name are its segment's.
Seen: four facts of a plain producer, and an agent deleted the only copy of another topic. Whoever reads, deletes or
moves objects that a fact names asks `not_own`, right before it, whatever anybody settled before.
Objects that another writer named (adopted ones; no fact can say so yet) would be a kind of subject of their own, with
a `match` in `not_own`; never a name that is let pass here.
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
    """``topic``: all that stands before the topic id; where a prefix ends in it is not to be seen."""

    topic: str
    partition: TopicIdPartition
    base_offset: Offset
    segment_id: RemoteSegmentId

    @classmethod
    def parse(cls, base_key: str, start: int = 0) -> ObjectName | None:
        """The name that a key without its suffix is from ``start`` on; None: it is none."""
        found = _NAME.fullmatch(base_key, start) if start <= len(base_key) else None
        if found is None:
            return None
        partition, offset = int(found["partition"]), int(found["offset"])
        if len(str(partition)) != len(found["partition"]) or offset >= 2**63:
            return None
        try:
            place = TopicIdPartition(TopicId(found["topic_id"]), partition)
            segment_id = RemoteSegmentId(found["segment_id"])
        except InvalidRequest:
            return None
        return cls(found["topic"], place, Offset(offset), segment_id)

    def __str__(self) -> str:
        return f"{self.topic}{_behind_topic(self.partition, self.base_offset, self.segment_id)}"


def folder_name(topic: str, partition: TopicIdPartition) -> str:
    """How the names of a partition begin."""
    return f"{topic}-{partition.topic_id}/{partition.partition}/"


def _behind_topic(partition: TopicIdPartition, base_offset: Offset, segment_id: RemoteSegmentId) -> str:
    return f"{folder_name('', partition)}{base_offset:020d}-{segment_id}"


def is_named_so(key: str, partition: TopicIdPartition, base_offset: Offset, segment_id: RemoteSegmentId) -> bool:
    """Whether a key without its suffix is of exactly this segment, whatever its prefix and topic name."""
    return key.endswith(_behind_topic(partition, base_offset, segment_id))


def not_own(subject: CopyAttempt | RemoteSegment) -> str | None:
    """How the object key of a fact belies the segment that its key names; None: they are its own objects."""
    if is_named_so(subject.object_key, subject.partition, subject.offsets.start, subject.segment_id):
        return None
    return f"its object key is of another segment: {subject.object_key!r}"


def require_own(subject: CopyAttempt | RemoteSegment) -> None:
    """Raises CorruptData when the objects that a fact names are not its segment's."""
    if not_own(subject) is not None:
        raise CorruptData(
            "a fact names objects of another segment: they stay untouched",
            partition=subject.partition,
            segment_id=subject.segment_id,
            offsets=subject.offsets,
            object_key=subject.object_key,
        )
