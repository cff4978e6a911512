"""What a name means: partitions of a topic that is there by its name, of one that is gone by its topic id."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ..state.errors import InvalidRequest, TierstateError, UnknownTopic
from ..state.ids import TopicId, TopicIdPartition
from .connection import Connection, view_now

if TYPE_CHECKING:
    from ..broker.control import BrokerControl, TopicDirectory
    from ..follower.follower import Follower
    from ..state.partition_view import PartitionView
    from ..state.routing import LocalBounds


def partitions_of(broker: TopicDirectory, topic: str, partition: int | None) -> list[TopicIdPartition]:
    """The partitions of a topic by its name, or one of them. Raises UnknownTopic."""
    described = broker.topic(topic)
    numbers = [each.partition for each in described.partitions]
    if partition is not None and partition not in numbers:
        raise UnknownTopic("no such partition", topic=topic, partition=partition, partitions=len(numbers))
    return [TopicIdPartition(described.topic_id, each) for each in numbers if partition in (None, each)]


def find_partitions(broker: TopicDirectory, topic: str, partition: int | None) -> list[TopicIdPartition] | None:
    """As `partitions_of`, and of a topic that is gone by its topic id; None: all of one that is gone, and only facts
    tell which there are. Raises UnknownTopic.
    """
    from ..fetch.gone import gone_id

    try:
        return partitions_of(broker, topic, partition)
    except UnknownTopic:
        found = gone_id(broker, topic)
        if found is None:
            raise
        return None if partition is None else [TopicIdPartition(found, partition)]


def find_topic_id(broker: TopicDirectory, topic: str) -> TopicId:
    """The topic id that a name or a topic id means. Raises UnknownTopic."""
    try:
        return broker.topic(topic).topic_id
    except UnknownTopic as error:
        try:
            return TopicId(topic)
        except InvalidRequest:
            raise error from None


def partitions_with_facts(
    follower: Follower, topic_id: TopicId | None, partition: int | None
) -> list[TopicIdPartition]:
    """The partitions of a topic id with a live fact, or one of them; None: of every topic."""
    return [
        each
        for each in follower.partitions()
        if topic_id in (None, each.topic_id) and partition in (None, each.partition)
    ]


def to_follow(topic_id: TopicId | None, partition: int | None) -> list[TopicIdPartition] | None:
    """What `Connection.view` must follow for it: one partition where one is named, else everything."""
    return None if topic_id is None or partition is None else [TopicIdPartition(topic_id, partition)]


def follow_facts(
    connection: Connection, topic: str | None, partition: int | None
) -> tuple[Follower, list[TopicIdPartition]]:
    """A view, and `partitions_with_facts` of a topic by its name or id; None: of every one. Raises UnknownTopic."""
    topic_id = None if topic is None else find_topic_id(connection.broker.control, topic)
    follower = connection.view(to_follow(topic_id, partition))
    return follower, partitions_with_facts(follower, topic_id, partition)


def bounds_if_known(broker: BrokerControl, topic: str | None, partition: TopicIdPartition) -> LocalBounds | None:
    """What the broker has; None where it does not answer or the topic is gone (None)."""
    if topic is not None:
        with suppress(TierstateError):
            return broker.bounds(topic, partition.partition)
    return None


def both_tiers_now(
    broker: BrokerControl, follower: Follower, topic: str | None, partition: TopicIdPartition
) -> tuple[LocalBounds | None, PartitionView]:
    """`bounds_if_known`; then the view, up to after that.

    In this order: every trim that the bounds show is in the view, so nothing that it took looks missing, or as if
    somebody else had cut it.
    """
    return bounds_if_known(broker, topic, partition), view_now(follower, partition)
