"""Where a stream is: the JSON of Spark's Kafka source, so that either source goes on with the other's checkpoint.

    {"orders": {"0": 23, "1": 7}, "orders@B77wDUR8RHy8A-tEvRU0uw": {}}

Each offset is that of the next record. An entry without partitions says of which topic the offsets are: one that was
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
"""What Spark keeps in the checkpoint; it compares the texts, so one place has one form."""


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """``topic_ids``: of the topics whose id was said; none in a checkpoint that Spark's Kafka source wrote."""

    offsets: Mapping[TopicPartition, Offset]
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)

    def same_topics(self, other: StreamOffsets) -> dict[TopicPartition, Offset]:
        """Without those of topics that are known to be other ones there."""
        return {
            key: offset
            for key, offset in self.offsets.items()
            if self.topic_ids.get(key[0]) in (None, other.topic_ids.get(key[0])) or key[0] not in other.topic_ids
        }

    def to_json(self) -> Json:
        found: Json = {}
        for (topic, partition), offset in sorted(self.offsets.items()):
            found.setdefault(topic, {})[str(partition)] = offset
        for topic, topic_id in sorted(self.topic_ids.items()):
            found[f"{topic}@{topic_id}"] = {}
        return found


def parse_offsets(given: Mapping[str, Any]) -> StreamOffsets:
    """Raises InvalidRequest for what neither source writes."""
    offsets: dict[TopicPartition, Offset] = {}
    topic_ids: dict[str, TopicId] = {}
    for topic, by_partition in given.items():
        name, is_id, topic_id = topic.partition("@")
        if not isinstance(by_partition, Mapping) or (is_id and by_partition):
            raise _foreign(given)
        if is_id:
            topic_ids[name] = TopicId(topic_id)
        for number, offset in by_partition.items():
            if not number.isdecimal() or not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
                raise _foreign(given)
            offsets[topic, int(number)] = Offset(offset)
    return StreamOffsets(offsets, topic_ids)


def _foreign(given: Mapping[str, Any]) -> InvalidRequest:
    return InvalidRequest(
        'the checkpoint is of another source: its offsets are not JSON like {"topicA":{"0":23}}', got=dict(given)
    )
