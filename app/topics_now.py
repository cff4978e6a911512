"""Every topic with facts as it is now: by the view, by what its agents answer, and by what the bucket has."""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing

from ..state.partition_view import PartitionView
from .agent_boards import AgentBoards
from .connection import Connection
from .lost_state import without_facts
from .overview import TopicOverview, addresses_of, overview


def topics_now(connection: Connection, *, gone: bool = False) -> list[TopicOverview]:
    """Return an overview of each topic, by name. ``gone``: also of those that the cluster no longer has, by their id.

    The agents of a topic that is gone are not asked: they have nothing to do for it.
    """
    view = connection.view()
    names = {described.topic_id: described.name for described in connection.control.topics()}
    with closing(AgentBoards(connection.clock)) as boards:
        said = boards.now(sorted(addresses_of(view.partition(each) for each in view.partitions())))
    for number in sorted({view.tier_partition(each) for each in view.partitions()}):
        view.require_fresh(number, 0)  # later than the agents' answers: see `overview`
    here, older = defaultdict[str, list[PartitionView]](list), defaultdict[str, list[PartitionView]](list)
    for partition in view.partitions():
        known = view.partition(partition)
        if partition.topic_id in names:
            here[names[partition.topic_id]].append(known)
        elif gone:
            older[f"{known.topic or 'unknown'} (gone, id {partition.topic_id})"].append(known)
    lost = without_facts(connection, view)
    for each in lost:
        here[names[each.topic_id]].append(view.partition(each))
    found = [overview(name, views, said, lost) for name, views in here.items()]
    found += [overview(name, views, {}) for name, views in older.items()]
    return sorted(found, key=lambda each: each.topic)
