"""Partitions that outlive their topic's name: found by name while the topic exists, else by topic id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .topic_argument import TopicArgument

if TYPE_CHECKING:
    from ..follower.follower import Follower
    from ..state.ids import TopicId, TopicIdPartition
    from .context import Context


def topic_id_of(argument: TopicArgument) -> TopicId:
    """Raises InvalidRequest for what is no topic id."""
    from ..state.ids import TopicId

    return TopicId(argument.topic)


def ids_meant(context: Context, argument: TopicArgument) -> tuple[TopicId, int | None]:
    """The topic id that a name or a topic id means, and the partition. Raises UnknownTopic."""
    from ..state.errors import InvalidRequest, UnknownTopic
    from .opened import opened_broker

    with opened_broker(context) as broker:
        try:
            return broker.control.topic(argument.topic).topic_id, argument.partition
        except UnknownTopic as error:
            try:
                return topic_id_of(argument), argument.partition
            except InvalidRequest:
                raise error from None


def facts_of(follower: Follower, topic_id: TopicId | None, partition: int | None) -> list[TopicIdPartition]:
    """The partitions of a topic id with a live fact, or one of them; None: of every topic."""
    return [
        each
        for each in follower.partitions()
        if topic_id in (None, each.topic_id) and partition in (None, each.partition)
    ]


def wanted_of(topic_id: TopicId | None, partition: int | None) -> list[TopicIdPartition] | None:
    """What `opened_view` must follow for it: one partition where one is named, else everything."""
    from ..state.ids import TopicIdPartition

    return None if topic_id is None or partition is None else [TopicIdPartition(topic_id, partition)]


def erase_facts(context: Context, follower: Follower, partition: TopicIdPartition, keys: tuple[str, ...]) -> None:
    """Tombstones by a person's order, one after another, each in the view before the next."""
    from ..leader.termless import unsay
    from .opened import opened_topic

    with opened_topic(context) as topic:
        for key in keys:
            unsay(topic, follower, partition, key)
