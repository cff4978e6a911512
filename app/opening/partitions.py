"""The partitions that a name means: an existing topic goes by its name, a deleted one by its topic id."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ...state.errors import InvalidRequest, TierstateError, UnknownTopic
from ...state.ids import TopicId, TopicIdPartition
from .connection import Connection, view_now

if TYPE_CHECKING:
    from ...broker.control import BrokerControl, TopicDirectory
    from ...follower.follower import Follower
    from ...state.partition_view import PartitionView
    from ...state.routing import LocalBounds


def partitions_of(broker: TopicDirectory, topic: str, partition: int | None) -> list[TopicIdPartition]:
    """Return the partitions of a topic by its name, or one of them. Raises UnknownTopic."""
    described = broker.topic(topic)
    numbers = [each.partition for each in described.partitions]
    if partition is not None and partition not in numbers:
        raise UnknownTopic("no such partition", topic=topic, partition=partition, partitions=len(numbers))
    return [TopicIdPartition(described.topic_id, each) for each in numbers if partition in (None, each)]


def find_partitions(broker: TopicDirectory, topic: str, partition: int | None) -> list[TopicIdPartition] | None:
    """Return what `partitions_of` does; a deleted topic goes by its topic id. None: all partitions of a deleted
    topic, which only facts name. Raises UnknownTopic.
    """
    from ...fetch.gone import gone_id

    try:
        return partitions_of(broker, topic, partition)
    except UnknownTopic:
        topic_id = gone_id(broker, topic)
        if topic_id is None:
            raise
        return None if partition is None else [TopicIdPartition(topic_id, partition)]


def find_topic_id(broker: TopicDirectory, topic: str) -> TopicId:
    """Return the topic id that a name or a topic id means. Raises UnknownTopic."""
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
    """Return the partitions of a topic id with a live fact, or one of them; None: of every topic."""
    return [
        each
        for each in follower.partitions()
        if topic_id in (None, each.topic_id) and partition in (None, each.partition)
    ]


def to_follow(topic_id: TopicId | None, partition: int | None) -> list[TopicIdPartition] | None:
    """Return the partitions that `Connection.view` must follow: the one that is named, or None for everything."""
    return None if topic_id is None or partition is None else [TopicIdPartition(topic_id, partition)]


def follow_facts(
    connection: Connection, topic: str | None, partition: int | None
) -> tuple[Follower, list[TopicIdPartition]]:
    """Return a view, and `partitions_with_facts` of a topic by name or id; None: of every one. Raises UnknownTopic."""
    topic_id = None if topic is None else find_topic_id(connection.broker.control, topic)
    follower = connection.view(to_follow(topic_id, partition))
    return follower, partitions_with_facts(follower, topic_id, partition)


def bounds_if_known(broker: BrokerControl, topic: str | None, partition: TopicIdPartition) -> LocalBounds | None:
    """Return the broker's bounds; None where it does not answer or ``topic`` is None (deleted)."""
    if topic is not None:
        with suppress(TierstateError):
            return broker.bounds(topic, partition.partition)
    return None


def both_tiers_now(
    broker: BrokerControl, follower: Follower, topic: str | None, partition: TopicIdPartition
) -> tuple[LocalBounds | None, PartitionView]:
    """Return `bounds_if_known`, then a view that is newer.

    In this order every trim that the bounds show is in the view, so nothing that it deleted looks missing or looks cut
    by others.
    """
    return bounds_if_known(broker, topic, partition), view_now(follower, partition)
