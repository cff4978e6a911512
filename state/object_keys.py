"""The object keys of a copied segment. Only this file creates and parses them.

    <prefix><topic>-<topic id>/<partition>/<base offset, 20 digits>-<segment id><suffix>

``prefix`` is used verbatim, like Aiven's ``key.prefix``: no ``/`` is added after it (``pfx`` gives ``pfxtopic-…``). It
is part of the key. The prefix in a store's URL is not part of the key: the store itself adds it (`open.py`). ``{salt}``
in the prefix is replaced by the first bits, as ``0`` and ``1``, of MD5("cluster-topic-partition"), as in Pinterest's
uploader: the salt spreads partitions over key ranges. Facts and manifests contain complete keys. So objects under an
earlier prefix or salt can still be read and deleted after a change.

The text between prefix and suffix is the *name*, which identifies the segment. It is parsed from the right by fixed
widths, because topics contain ``-`` and ids may begin with it. A Java process with an Arabic or Persian locale writes
its own digits: any decimal digit is accepted, only ASCII digits are written.

*A fact names its own objects only*: topic id, partition, base offset and segment id of the name are its segment's.
Without this rule, four facts of a plain producer made an agent delete the only copy of another topic. Code that reads,
deletes or moves objects that a fact names calls `not_own` right before, whatever a person settled earlier.
`tierstate adopt` copies the objects of other writers: no fact names objects with names of another form.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum

from .errors import CorruptData, InvalidRequest
from .ids import RemoteSegmentId, TopicId, TopicIdPartition
from .objects import checked_key
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


_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Kafka's rule for topic names (`org.apache.kafka.common.internals.Topic`)."""


SALT = "{salt}"
DEFAULT_SALT_BITS = 5


class ObjectKind(StrEnum):
    """The three objects of a segment, by suffix. The manifest is written last and completes the segment."""

    LOG = ".log"
    INDEXES = ".indexes"
    MANIFEST = ".rsm-manifest"


@dataclass(frozen=True, slots=True)
class ParsedObjectKey:
    """The parts of an object key. ``base_key`` is the original text of the key without the suffix, in any digits."""

    base_key: str
    kind: ObjectKind
    topic: str
    partition: TopicIdPartition
    base_offset: Offset
    segment_id: RemoteSegmentId


@dataclass(frozen=True, slots=True)
class ObjectKeys:
    """The keys below one key prefix. Raises InvalidRequest for a prefix that no key can have.

    ``cluster_id`` and ``salt_bits`` (1 to 128) are used only if the prefix contains ``{salt}``.
    """

    prefix: str = ""
    cluster_id: str = ""
    salt_bits: int = DEFAULT_SALT_BITS

    def __post_init__(self) -> None:
        checked_key(f"{self.prefix}x")
        if not 1 <= self.salt_bits <= 128:
            raise InvalidRequest("a salt has 1 to 128 bits", salt_bits=self.salt_bits)

    @classmethod
    def minting(cls, prefix: str, cluster_id: str, salt_bits: int) -> ObjectKeys:
        """Return the keys for new objects, from settings. Raises InvalidRequest for more prefixes than reading does."""
        if set("{}") & set(prefix.replace(SALT, "")):
            raise InvalidRequest("format.key_prefix has no braces but {salt}", key_prefix=repr(prefix))
        if prefix.startswith("_tierstate"):
            raise InvalidRequest("format.key_prefix is reserved: archive and checkpoints", key_prefix=repr(prefix))
        return cls(prefix, cluster_id, salt_bits)

    def base_key(
        self, topic: str, topic_id: TopicId, partition: int, base_offset: int, segment_id: RemoteSegmentId
    ) -> str:
        """Return the complete key without a suffix. Raises InvalidRequest for a value that no key can have."""
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise InvalidRequest("not a topic name", topic=repr(topic))
        if not 0 <= base_offset < 2**63:
            raise InvalidRequest("base offset out of range", base_offset=base_offset)
        name = ObjectName(topic, TopicIdPartition(topic_id, partition), Offset(base_offset), segment_id)
        key = f"{self._salted(topic, partition)}{name}"
        checked_key(object_key(key, ObjectKind.MANIFEST))
        return key

    def partition_prefix(self, topic: str, topic_id: TopicId, partition: int) -> str:
        """Return the text with which all new keys of one partition begin, and no key of another partition.

        Keys that were created under another prefix begin with another text: use `folder_of` for the keys in facts.
        """
        return f"{self._salted(topic, partition)}{folder_name(topic, TopicIdPartition(topic_id, partition))}"

    def parse(self, key: str) -> ParsedObjectKey | None:
        """Parse a key. Returns None if it is not an object of a segment below this prefix."""
        kind = next((each for each in ObjectKind if key.endswith(each)), None)
        before = self._shape().match(key)
        if kind is None or before is None:
            return None
        base_key = key.removesuffix(kind)
        name = ObjectName.parse(base_key, before.end())
        if name is None or not _TOPIC.fullmatch(name.topic):
            return None
        if self._salted(name.topic, name.partition.partition) != before[0]:
            return None
        return ParsedObjectKey(base_key, kind, name.topic, name.partition, name.base_offset, name.segment_id)

    def without_prefix(self, named: str) -> str | None:
        """Return the topic of a name by `named_before_id`, or None if the name is not below this prefix."""
        before = self._shape().match(named)
        return None if before is None else named[before.end() :]

    def _shape(self) -> re.Pattern[str]:
        salt = f"[01]{{{self.salt_bits}}}"
        return re.compile(salt.join(map(re.escape, self.prefix.split(SALT))))

    def _salted(self, topic: str, partition: int) -> str:
        if SALT not in self.prefix:
            return self.prefix
        digest = hashlib.md5(f"{self.cluster_id}-{topic}-{partition}".encode(), usedforsecurity=False).digest()
        return self.prefix.replace(SALT, f"{int.from_bytes(digest, 'big'):0128b}"[: self.salt_bits])


_FOLDER = re.compile(rf"(.+)-{_ID}/\d+/")


def named_before_id(key: str) -> str | None:
    """Return the text before the topic id in the key of a segment's object: a prefix and the topic. Else None.

    The folder of a partition is sufficient.
    """
    match = _FOLDER.match(key)
    return match and match[1]


def may_be_of(key: str, topic: str | None, partition: int | None) -> bool:
    """Return whether a key, below any prefix, can belong to this topic and partition (None: any). A key of topic
    ``a-b`` also matches topic ``b``, because a key does not show where its prefix ends. The manifest then decides.
    """
    if topic is None:
        return True
    name = ObjectName.parse(base_of(key))
    return name is not None and name.topic.endswith(topic) and partition in (None, name.partition.partition)


def keys_below(folder: str, topic: str, partition: TopicIdPartition) -> ObjectKeys | None:
    """Return the keys below the prefix of this partition's ``folder`` (`folder_of`); None if it is not its folder."""
    tail = folder_name(topic, partition)
    if not folder.endswith(tail) or SALT in folder:
        return None
    return ObjectKeys(folder.removesuffix(tail))


def folder_of(base_key: str) -> str:
    """Return the text with which the partition's keys began when this key was created, whatever the prefix is now."""
    return base_key[: base_key.rindex("/") + 1]


def object_key(base_key: str, kind: ObjectKind) -> str:
    """Return the key of one of the three objects of a segment."""
    return f"{base_key}{kind}"


def base_of(key: str) -> str:
    """Return the base key of an object key. A base key is returned unchanged."""
    kind = next((each for each in ObjectKind if key.endswith(each)), None)
    return key if kind is None else key.removesuffix(kind)
