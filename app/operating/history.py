"""A topic that diverged from its archive: find where, and what only the lost history had; begin a new history."""

from __future__ import annotations

from dataclasses import dataclass

from ...follower.archives import Archives
from ...follower.histories import begin_history
from ...follower.parting import Parting, find_parting
from ...follower.shelf import Shelf
from ...leader.recover_scan import scan_bucket, sort_out
from ...rules.lost_facts import Aftermath, aftermath_of
from ...state.errors import HistoryBroken, InvalidRequest
from ...state.ids import TopicId
from ..opening.connection import Connection
from .prefix import take_from_the_dead


@dataclass(frozen=True, slots=True)
class Break:
    """A divergence. ``history``: the history to leave. ``why``: the evidence. ``after``: partitions after that."""

    topic_id: str
    history: int
    why: str
    partings: tuple[Parting, ...]
    after: tuple[Aftermath, ...]


def find_break(connection: Connection) -> Break:
    """Compare the complete topic with its archive. Raises InvalidRequest if they have not diverged."""
    store, topic = connection.store, connection.topic
    identity = connection.identity
    archives, numbers = Archives(topic, store, identity, connection.clock), range(topic.mapped_partitions)
    with connection.progress("comparing topic and archive", len(numbers)) as advance:
        for number in numbers:
            try:
                archives.check(number)
            except HistoryBroken:
                pass  # the break is what we are looking for
            advance(1)
    if archives.broken is None:
        raise InvalidRequest("topic and archive have not parted: there is nothing to settle", history=identity.history)
    partings = tuple(find_parting(topic, Shelf(store, identity, number)) for number in numbers)
    # the bucket is read before the view, so the view names each segment that is copied between the two reads
    bucket = sort_out(scan_bucket(store), connection.cluster_id, (TopicId(topic.topic_id),))
    follower = connection.view()
    after = tuple(aftermath_of([follower.partition(each) for each in follower.partitions()], bucket.ours))
    return Break(topic.topic_id, identity.history, str(archives.broken), partings, after)


def begin_after(connection: Connection, break_: Break) -> None:
    """Begin a new history: the topic is now authoritative. Segments that only the lost history had are no longer used.

    Raises Fenced while a process that this topic does not know writes to the bucket.
    """
    take_from_the_dead(connection)
    left = [segment.segment_id for each in break_.after for segment in each.left]
    begin_history(connection.store, break_.topic_id, break_.history + 1, connection.clock.now_ms(), break_.why, left)
