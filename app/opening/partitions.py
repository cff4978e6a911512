"""Find partitions of a topic: of an existing topic by its name, of a deleted topic by its topic id."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ...state.errors import InvalidRequest, TierstateError, UnknownTopic
from ...state.ids import TopicId, TopicIdPartition
from ...state.partition_view import PartitionView
from ...state.routing import LocalBounds
from .connection import Connection, view_now

if TYPE_CHECKING:
    from ...broker.control import BrokerControl, TopicDirectory
    from ...follower.follower import Follower


def partitions_of(broker: TopicDirectory, topic: str, partition: int | None) -> list[TopicIdPartition]:
    """Return all partitions of the topic with this name, or only ``partition``. Raises UnknownTopic."""
    described = broker.topic(topic)
    numbers = [each.partition for each in described.partitions]
    if partition is not None and partition not in numbers:
        raise UnknownTopic("no such partition", topic=topic, partition=partition, partitions=len(numbers))
    return [TopicIdPartition(described.topic_id, each) for each in numbers if partition in (None, each)]


def find_partitions(broker: TopicDirectory, topic: str, partition: int | None) -> list[TopicIdPartition] | None:
    """Like `partitions_of`, but also find a deleted topic by its topic id. Returns None for all partitions of a deleted
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


def find_partition(broker: TopicDirectory, topic: str, partition: int) -> TopicIdPartition:
    """Return the only result of `find_partitions`. Raises UnknownTopic."""
    places = find_partitions(broker, topic, partition)
    assert places is not None  # it is None only without a partition
    return places[0]


def find_topic_id(broker: TopicDirectory, topic: str) -> TopicId:
    """Return the id of the topic with this name, or ``topic`` itself if it is a topic id. Raises UnknownTopic."""
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
    """Return the partitions with a live fact. ``topic_id`` and ``partition`` select among them unless None."""
    return [
        each
        for each in follower.partitions()
        if topic_id in (None, each.topic_id) and partition in (None, each.partition)
    ]


def to_follow(topic_id: TopicId | None, partition: int | None) -> list[TopicIdPartition] | None:
    """Return the argument of `Connection.view`: the single named partition, or None for all partitions."""
    return None if topic_id is None or partition is None else [TopicIdPartition(topic_id, partition)]


def follow_facts(
    connection: Connection, topic: str | None, partition: int | None
) -> tuple[Follower, list[TopicIdPartition]]:
    """Return a view and its `partitions_with_facts`. ``topic``: name or id; None: all topics. Raises UnknownTopic."""
    topic_id = None if topic is None else find_topic_id(connection.broker.control, topic)
    follower = connection.view(to_follow(topic_id, partition))
    return follower, partitions_with_facts(follower, topic_id, partition)


def bounds_if_known(broker: BrokerControl, topic: str | None, partition: TopicIdPartition) -> LocalBounds | None:
    """Return the broker's bounds. Returns None if the broker does not answer or ``topic`` is None (deleted)."""
    if topic is not None:
        with suppress(TierstateError):
            return broker.bounds(topic, partition.partition)
    return None


def both_tiers_now(
    broker: BrokerControl, follower: Follower, topic: str | None, partition: TopicIdPartition
) -> tuple[LocalBounds | None, PartitionView]:
    """Return `bounds_if_known`, then a view that is newer.

    With this order, the view has every trim that the bounds show. So records that a trim deleted do not look missing or
    deleted by others.
    """
    return bounds_if_known(broker, topic, partition), view_now(follower, partition)
