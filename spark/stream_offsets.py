"""The position of a stream, and the size of a micro-batch. Pure.

A position is JSON of Spark's Kafka source: each source can continue the other's checkpoint.

    {"orders": {"0": 23, "1": 7}, "orders@B77wDUR8RHy8A-tEvRU0uw": {}}

Each offset is that of the next record. An entry ``name@id`` without partitions has the topic's id, because a re-created
topic has the same name and other records at the same offsets. Spark's Kafka source reads this entry as a topic without
partitions. No topic name contains an ``@``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..state.coverage import Coverage
from ..state.errors import InvalidRequest
from ..state.ids import TopicId
from ..state.offsets import Offset
from .positions import TopicPartition

Json = dict[str, dict[str, int]]
"""A position as Spark stores it in the checkpoint. Spark compares the text, so equal positions must have equal text."""
Extents = Mapping[TopicPartition, tuple[Offset, Offset]]
"""The unread offsets ``[start, end)`` of each partition."""


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The next offset of each partition. ``topic_ids``: known ids; a checkpoint of Spark's Kafka source has none."""

    offsets: Mapping[TopicPartition, Offset]
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)

    def same_topics(self, other: StreamOffsets) -> dict[TopicPartition, Offset]:
        """Return the offsets, without those of topics that have another id in ``other``."""
        return {
            key: offset
            for key, offset in self.offsets.items()
            if self.topic_ids.get(key[0]) in (None, other.topic_ids.get(key[0])) or key[0] not in other.topic_ids
        }

    def to_json(self) -> Json:
        document: Json = {}
        for (topic, partition), offset in sorted(self.offsets.items()):
            document.setdefault(topic, {})[str(partition)] = offset
        for topic, topic_id in sorted(self.topic_ids.items()):
            document[f"{topic}@{topic_id}"] = {}
        return document


def parse_offsets(checkpoint: Mapping[str, Any]) -> StreamOffsets:
    """Parse a position. Raises InvalidRequest for a form that neither source writes."""
    offsets: dict[TopicPartition, Offset] = {}
    topic_ids: dict[str, TopicId] = {}
    for topic, by_partition in checkpoint.items():
        name, is_id, topic_id = topic.partition("@")
        if not isinstance(by_partition, Mapping) or (is_id and by_partition):
            raise _foreign(checkpoint)
        if is_id:
            topic_ids[name] = TopicId(topic_id)
        for number, offset in by_partition.items():
            if not number.isdecimal() or not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
                raise _foreign(checkpoint)
            offsets[topic, int(number)] = Offset(offset)
    return StreamOffsets(offsets, topic_ids)


def _foreign(checkpoint: Mapping[str, Any]) -> InvalidRequest:
    return InvalidRequest(
        'the checkpoint is of another source: its offsets are not JSON like {"topicA":{"0":23}}', got=dict(checkpoint)
    )


@dataclass(frozen=True, slots=True)
class Sizes:
    """Estimates log bytes: the mean of their segment for copied offsets, ``local_rate`` bytes each for the others."""

    coverage: Coverage
    local_rate: float

    def between(self, start: Offset, end: Offset) -> int:
        return int(sum(count * rate for count, rate in self._stretches(start, end)))

    def after(self, start: Offset, end: Offset, most: int) -> Offset:
        """Return the exclusive end of about ``most`` bytes from ``start``: at least ``start + 1``, at most ``end``."""
        position, left = start, float(most)
        for count, rate in self._stretches(start, end):
            if count * rate > left:
                return Offset(max(position + int(left / rate), start + 1))
            position, left = Offset(position + count), left - count * rate
        return end

    def _stretches(self, start: Offset, end: Offset) -> Iterator[tuple[int, float]]:
        """Yield ``(number of offsets, bytes per offset)`` of the consecutive parts of ``[start, end)``."""
        while start < end:
            owner = self.coverage.at(start)
            if owner is not None:
                stop = min(end, owner.offsets.end + 1)
                rate = owner.segment.log_bytes / len(owner.segment.offsets)
            else:
                following = self.coverage.next_start(start)
                stop, rate = end if following is None else min(end, following), self.local_rate
            yield stop - start, rate
            start = Offset(stop)


def by_offsets(extents: Extents, most: int) -> dict[TopicPartition, Offset]:
    """Return the ends of a batch of about ``most`` offsets, divided by `shares`, which can exceed ``most``."""
    parts = shares({key: end - start for key, (start, end) in extents.items()}, most)
    return {key: Offset(min(start + parts[key], end)) for key, (start, end) in extents.items()}


def by_bytes(extents: Extents, sizes: Mapping[TopicPartition, Sizes], most: int) -> dict[TopicPartition, Offset]:
    """Return the ends of a batch of about ``most`` bytes of log, divided by `shares`."""
    parts = shares({key: sizes[key].between(*extent) for key, extent in extents.items()}, most)
    return {key: sizes[key].after(*extent, parts[key]) for key, extent in extents.items()}


def shares(left: Mapping[TopicPartition, int], most: int) -> dict[TopicPartition, int]:
    """Divide ``most`` in proportion to ``left``, each partition's unread size. Each nonempty partition gets at least 1,
    so the sum can exceed ``most``. As in Spark's Kafka source (`KafkaMicroBatchStream.rateLimit`), no small partition
    starves, and all partitions reach their ends together.
    """
    total = sum(left.values())
    return {key: max(1, most * size // total) if size > 0 else 0 for key, size in left.items()}
