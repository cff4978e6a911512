"""The present state of each topic that has facts or is to be tiered: from the view, the agents and the bucket."""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing

from ...rules.decide import refusal
from ...state.ids import BrokerId, TopicIdPartition
from ...state.partition_view import PartitionView
from ...state.retention import TopicConfig
from ...state.view import TierView
from ..opening.agent_boards import AgentBoards
from ..opening.connection import Connection
from ..opening.kip405_connection import Kip405Connection
from .lost_state import without_facts
from .overview import TopicOverview, addresses_of, overview


def topics_now(connection: Connection, *, gone: bool = False) -> list[TopicOverview]:
    """Return an overview of each topic with facts, and of each that the settings choose, by name.

    ``gone``: also return topics that the cluster no longer has, with their id in the name. Their agents' answers are
    not used: agents have nothing to do for them.
    """
    view = connection.view()
    names = {described.topic_id: described.name for described in connection.control.topics()}
    with closing(AgentBoards(connection.clock)) as boards:
        answers = boards.now(sorted(addresses_of(view.partition(each) for each in view.partitions())))
    for number in sorted({view.tier_partition(each) for each in view.partitions()}):
        view.require_fresh(number, 0)  # the views must be newer than the agents' answers: see `overview`
    here, older = defaultdict[str, list[PartitionView]](list), defaultdict[str, list[PartitionView]](list)
    for partition in view.partitions():
        partition_view = view.partition(partition)
        if partition.topic_id in names:
            here[names[partition.topic_id]].append(partition_view)
        elif gone:
            older[f"{partition_view.topic or 'unknown'} (gone, id {partition.topic_id})"].append(partition_view)
    lost, never = without_facts(connection, view), never_led(connection, view)
    for each in sorted({*lost, *never} - set(view.partitions())):
        here[names[each.topic_id]].append(view.partition(each))
    overviews = [overview(name, _by_number(views), answers, lost, never) for name, views in here.items()]
    overviews += [overview(name, views, {}) for name, views in older.items()]
    return sorted(overviews, key=lambda each: each.topic)


def kafkas_topics(connection: Kip405Connection) -> list[TopicOverview]:
    """Return an overview of each topic that Kafka itself tiers and that exists, by name. There is no agent to ask."""
    view = connection.view()
    names = {described.topic_id: described.name for described in connection.control.topics()}
    views = defaultdict[str, list[PartitionView]](list)
    for partition in view.partitions():
        if partition.topic_id in names:
            views[names[partition.topic_id]].append(view.partition(partition))
    return [overview(name, _by_number(each), {}) for name, each in sorted(views.items())]


def never_led(connection: Connection, view: TierView) -> set[TopicIdPartition]:
    """Return the partitions that these settings choose, that can be tiered, and that have never had a term."""
    control, settings = connection.control, connection.settings
    without = {
        TopicIdPartition(described.topic_id, each.partition): described.name
        for described in control.topics()
        if not described.internal and described.name != settings.tier_state.topic
        if settings.tiering.covers(described.name)
        for each in described.partitions
        if view.partition(TopicIdPartition(described.topic_id, each.partition)).leader is None
    }
    configs = control.configs(set(without.values()), broker=min(control.cluster().brokers)) if without else {}
    refused = {name for name, each in configs.items() if isinstance(each, TopicConfig) and refusal(each)}
    return {each for each, name in without.items() if name not in refused}


def agent_addresses(connection: Connection) -> dict[BrokerId, str]:
    """Return the address of each broker's agent, from the newest term that it began for any partition."""
    view = connection.view()
    leaders = [leader for each in view.partitions() if (leader := view.partition(each).leader) is not None]
    return {each.broker_id: each.management_address for each in sorted(leaders, key=lambda each: each.elected_at)}


def _by_number(views: list[PartitionView]) -> list[PartitionView]:
    return sorted(views, key=lambda view: view.partition.partition)
