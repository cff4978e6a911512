"""The position of a stream: the JSON of Spark's Kafka source, so that each source can continue the other's checkpoint.

    {"orders": {"0": 23, "1": 7}, "orders@B77wDUR8RHy8A-tEvRU0uw": {}}

Each offset is that of the next record. An entry without partitions has the id of the offsets' topic: a topic that was
deleted and created again has the same name, and other records at the same offsets. Kafka's source reads such an entry
as a topic of no partitions, and no topic's name has an ``@``.
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
"""The form in which Spark keeps a position in the checkpoint; it compares the texts, so one position has one form."""


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """``topic_ids``: of topics with a known id; a checkpoint that Spark's Kafka source wrote has none."""

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
