"""Find lost facts of partitions, as far as the bucket shows them: for messages, and for a recovery that adds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ...follower.archive_chain import chain_of
from ...follower.archives import left_behind
from ...follower.follower import Follower
from ...follower.time_travel import archived_entries
from ...follower.view_identity import Shelf
from ...leader.lost_facts import LostFactsTools, list_segments, look_for_lost_facts
from ...leader.recover_scan import continued, read_history, said_by
from ...rules.lost_facts import LostFacts, holes, lost_facts
from ...rules.lost_facts import why_lost as why_segments_lost
from ...runtime.units import counted
from ...state.errors import TierstateError, TierStateLost
from ...state.ids import TopicIdPartition
from ...state.partition_view import PartitionView
from ...state.routing import LocalBounds
from ...storage.segment.known import check_known
from ..opening.connection import Connection, view_now
from ..opening.partitions import both_tiers_now, partitions_of
from .archived_deletes import ArchivedDeletes


def why_lost(
    connection: Connection, follower: Follower, topic: str, view: PartitionView, bounds: LocalBounds | None
) -> str | None:
    """Return why facts of the partition must be missing, and what to do. ``bounds`` are older than ``view``.

    The bucket is queried only if no fact has the log start, or offsets are in no tier. Returns None if nothing is
    missing, if no store is set, or if the store does not answer.
    """
    if not connection.settings.store.url:
        return None
    start = None if bounds is None else bounds.local_start
    try:
        if view.log_starts:
            if not holes(view, start):
                return None
            fresh = partial(view_now, follower, view.partition)
            why = why_segments_lost(look_for_lost_facts(lost_facts_tools(connection), topic, view, fresh, start), topic)
            return None if why is None else why.text
        store, names = connection.store, connection.names
        try:
            check_known(view, topic, store, names)
        except TierStateLost:  # the view may only be older than the bucket: check a newer one
            check_known(view_now(follower, view.partition), topic, store, names)
    except TierStateLost as lost_error:
        return str(lost_error)
    except TierstateError:
        return None
    return None


def lost_facts_tools(connection: Connection) -> LostFactsTools:
    store = connection.store
    archived = ArchivedDeletes(store, connection.identity, connection.clock, connection.listener)
    left = partial(left_behind, store, connection.topic.topic_id)
    return LostFactsTools(store, connection.names, connection.cluster_id, archived, left)


@dataclass(frozen=True, slots=True)
class LostPartition:
    """Lost facts of one partition. ``view``: its present facts. ``archived_to``: the archive's end, or None."""

    topic: str
    view: PartitionView
    lost: LostFacts
    archived_to: int | None


def look_at_lost(connection: Connection, topic: str, number: int | None) -> list[LostPartition]:
    """Return the lost facts of partition ``number`` (None: of each). An archive, if there is one, is authoritative.

    Raises the errors of the broker and the store, and CorruptData for a damaged archive.
    """
    partitions = partitions_of(connection.control, topic, number)
    follower = connection.view(partitions)
    return [_look_at(connection, follower, topic, each) for each in partitions]


def _look_at(connection: Connection, follower: Follower, topic: str, partition: TopicIdPartition) -> LostPartition:
    bounds, before = both_tiers_now(connection.control, follower, topic, partition)
    unknown = list_segments(lost_facts_tools(connection), topic, before).unknown
    view = view_now(follower, partition)
    shelf = Shelf(connection.store, connection.identity, follower.tier_partition(partition))
    chain = chain_of(connection.store, shelf.place)
    archived, archived_to = {partition: said_by(view)}, None
    if chain.names:
        archive, archived_to = read_history(archived_entries(shelf)), int(chain.end)
        if partition in archive:
            archived = continued({partition: archive[partition]}, archived)
    left = left_behind(connection.store, connection.topic.topic_id)
    start = None if bounds is None else bounds.local_start
    return LostPartition(topic, view, lost_facts(view, unknown, archived[partition], start, left), archived_to)


def facts_are_there(
    connection: Connection, follower: Follower, partitions: Sequence[tuple[str, TopicIdPartition]]
) -> str:
    """Return one sentence. Raises TierStateLost for the first of these partitions that has lost facts."""
    for topic, partition in partitions:
        bounds, view = both_tiers_now(connection.control, follower, topic, partition)
        lost = why_lost(connection, follower, topic, view, bounds)
        if lost is not None:
            raise TierStateLost(f"FACTS LOST  {lost}", topic=topic, partition=partition.partition)
    return f"none is lost, as far as {counted(len(partitions), 'partition')} and the bucket tell"


def without_facts(connection: Connection, follower: Follower) -> list[TopicIdPartition]:
    """Return the partitions of tiered topics that have no fact, although the bucket has segments of them.

    It takes one LIST for each partition without facts. ``follower`` must have all tier-state partitions.
    """
    tiering, spoken = connection.settings.tiering, set(follower.partitions())
    return [
        partition
        for topic in connection.control.topics()
        if not topic.internal and tiering.covers(topic.name)
        for each in topic.partitions
        if (partition := TopicIdPartition(topic.topic_id, each.partition)) not in spoken
        and why_lost(connection, follower, topic.name, PartitionView(partition), None) is not None
    ]


def require_nothing_lost(
    connection: Connection, follower: Follower, topic: str, view: PartitionView, bounds: LocalBounds
) -> None:
    """Raise TierStateLost if facts are lost: an order might delete the segments of the lost facts."""
    lost = why_lost(connection, follower, topic, view, bounds)
    if lost is not None:
        raise TierStateLost(
            f"nothing may be ordered away while facts are lost: {lost}", topic=topic, partition=view.partition.partition
        )
