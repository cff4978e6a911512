"""A person's decisions as facts: name their issuer, create them, write them and erase them."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterable

from ...broker.tier_topic import TierTopic
from ...follower.follower import Follower
from ...leader.term import say, unsay
from ...rules.orders import standing
from ...runtime.clock import Clock, SystemClock
from ...runtime.id_source import IdSource, RandomIds
from ...state.epochs import Lineage
from ...state.errors import NotTiered, UnknownOutcome
from ...state.facts import ContradictionSettled, GapAccepted, LineageSettled, OperatorOrder, OrderKind
from ...state.ids import FactId, TopicIdPartition
from ...state.offsets import Offset
from ...state.partition_view import PartitionView
from ..opening.connection import Connection


def issuer() -> str:
    """Return the user of this process as ``user@machine``, or ``uid-N@machine`` if the user has no name."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def new_order(
    partition: TopicIdPartition,
    kind: OrderKind,
    clock: Clock,
    ids: IdSource,
    *,
    before: Offset | None = None,
    force: bool = False,
    lineage: Lineage | None = None,
) -> OperatorOrder:
    """Return an order of this process's user, as of now. ``before``, ``force``, ``lineage``: for delete-records."""
    identity, log_lineage = FactId.of(ids.uuid()), lineage or Lineage()
    return OperatorOrder(partition, identity, kind, before, force, issuer(), clock.now_ms(), log_lineage)


Decision = OperatorOrder | ContradictionSettled | LineageSettled | GapAccepted


def give(topic: TierTopic, follower: Follower, fact: Decision) -> None:
    """Write the fact, and wait until the view has it.

    After an append of unknown outcome, the view is searched for the fact. Raises UnknownOutcome if it has no such fact:
    the append may still succeed later.
    """
    try:
        say(topic, follower, fact.partition, fact)
    except UnknownOutcome:
        follower.require_fresh(follower.tier_partition(fact.partition), 0)
        view = follower.partition(fact.partition)
        if fact not in (*view.orders, *view.settled, *view.settled_lineages, *view.accepted_gaps):
            raise


def take_back(connection: Connection, follower: Follower, partition: TopicIdPartition, keys: Iterable[str]) -> None:
    """Write tombstones for a person's facts, one by one. Each is in the view before the next is written."""
    for key in keys:
        unsay(connection.topic, follower, partition, key)


def needed(view: PartitionView, kind: OrderKind) -> bool:
    """Return whether an order of ``kind`` would change the order in force (RESUME if there is none)."""
    now = standing(view)
    return kind is not (OrderKind.RESUME if now is None else now.kind)


def require_tiered(connection: Connection, topic: str, views: Iterable[PartitionView]) -> None:
    """Raise NotTiered if no agent would obey an order for this topic."""
    if connection.settings.tiering.covers(topic) or any(view.others or view.segments for view in views):
        return
    raise NotTiered("no fact is about it, and tiering.include does not name it: no agent obeys", topic=topic)


def order_each(
    topic: TierTopic, follower: Follower, views: Iterable[PartitionView], kind: OrderKind, outcomes: dict[int, str]
) -> None:
    """Write one order after another until one fails. ``outcomes`` gets each result, by partition number."""
    for view in views:
        number = view.partition.partition
        outcomes[number] = "failed"
        try:
            give(topic, follower, new_order(view.partition, kind, SystemClock(), RandomIds()))
        except UnknownOutcome:
            outcomes[number] = "unknown"
            raise
        outcomes[number] = "ordered"
