"""The position of a stream, in the JSON of Spark's Kafka source: each source can continue the other's checkpoint.

    {"orders": {"0": 23, "1": 7}, "orders@B77wDUR8RHy8A-tEvRU0uw": {}}

Each offset is that of the next record. An entry ``name@id`` without partitions has the topic's id, because a re-created
topic has the same name and other records at the same offsets. Spark's Kafka source reads this entry as a topic without
partitions. No topic name contains an ``@``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..state.errors import InvalidRequest
from ..state.ids import TopicId
from ..state.offsets import Offset
from .positions import TopicPartition

Json = dict[str, dict[str, int]]
"""A position as Spark stores it in the checkpoint. Spark compares the text, so equal positions must have equal text."""


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
