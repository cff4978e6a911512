"""``__remote_log_metadata``: which of its partitions has the records of a partition, its ends, and a reader of it.

The topic is not compacted. By default nothing of it is ever deleted, and every reader begins at its start.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from ..broker.kafka_access import KafkaAccess
from ..broker.open import Broker
from ..broker.raw import EARLIEST, LATEST
from ..broker.tier_reader import KafkaReader, TierReader
from ..state.epochs import LeaderEpoch
from ..state.errors import UnknownTopic
from ..state.ids import TopicId, TopicIdPartition
from ..state.keys import murmur2
from ..state.offsets import Position

TOPIC = "__remote_log_metadata"
_64_BITS, _32_BITS = 2**64 - 1, 2**32 - 1


@lru_cache(65_536)
def metadata_partition_of(partition: TopicIdPartition, partitions: int) -> int:
    """Return the partition of the metadata topic, of ``partitions``, that has all records of this partition.

    Kafka's ``RemoteLogMetadataTopicPartitioner``: murmur2 over ``Objects.hash`` of the topic id's least and most
    significant bits and the partition, as int32 big endian. This is not the mapping of the tier-state topic.
    """
    most, least = (int.from_bytes(half) for half in (partition.topic_id.raw[:8], partition.topic_id.raw[8:]))
    hashed = 1
    for part in (_hash_of_long(least), _hash_of_long(most), partition.partition):
        hashed = (31 * hashed + part) & _32_BITS
    return (murmur2(hashed.to_bytes(4)) & 0x7FFFFFFF) % partitions


def _hash_of_long(value: int) -> int:
    """Return Java's ``Long.hashCode`` as an unsigned int32."""
    return (value ^ (value >> 32)) & _64_BITS & _32_BITS


class MetadataTopic:
    """The metadata topic of a cluster. ``partitions``: their number. Thread-safe, except for its readers."""

    def __init__(self, kafka: KafkaAccess, broker: Broker, topic_id: TopicId, partitions: int) -> None:
        self.topic_id, self.partitions = topic_id, partitions
        self._kafka, self._broker = kafka, broker

    def end(self, number: int) -> Position:
        """Return the position after the last record. Raises BrokerUnavailable, AccessDenied."""
        return Position(self._broker.reads.offset(TOPIC, number, LATEST))

    def start(self, number: int) -> Position:
        """Return the position of the first record. It is above 0 if the topic has a retention."""
        return Position(self._broker.reads.offset(TOPIC, number, EARLIEST))

    def reader(self, positions: Mapping[int, Position], epochs: Mapping[int, int]) -> TierReader:
        """Return a reader from these positions on. ``epochs``: the leader epochs in which they were read.

        Raises PositionLost if the topic was truncated below a position.
        """
        return KafkaReader(self._kafka, TOPIC, positions, epochs, self._end_of_epoch)

    def _end_of_epoch(self, number: int, epoch: int) -> Position:
        return Position(self._broker.reads.epoch_end(TOPIC, number, LeaderEpoch(epoch)))


def open_metadata_topic(kafka: KafkaAccess, broker: Broker) -> MetadataTopic:
    """Open the topic. Raises UnknownTopic if this cluster does not have it. Also AccessDenied, BrokerUnavailable."""
    try:
        described = broker.control.topic(TOPIC)
    except UnknownTopic as error:
        raise UnknownTopic(
            "this cluster has no topic of Kafka's own tiered storage: it is off, nothing was tiered yet, or its "
            "metadata is kept elsewhere (Amazon MSK, Confluent and Redpanda tier by other means)",
            topic=TOPIC,
        ) from error
    return MetadataTopic(kafka, broker, described.topic_id, len(described.partitions))
