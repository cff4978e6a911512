"""Operator orders as facts: who gives one, how it is told, and how it is written."""

from __future__ import annotations

import getpass
import os
import socket
from typing import TYPE_CHECKING

from ..state.facts import OperatorOrder, OrderKind
from ..state.offsets import moment

if TYPE_CHECKING:
    from ..broker.tier_topic import TierTopic
    from ..follower.follower import Follower
    from ..runtime.clock import Clock
    from ..runtime.id_source import IdSource
    from ..state.epochs import Lineage
    from ..state.ids import TopicIdPartition
    from ..state.offsets import Offset


def told(order: OperatorOrder) -> str:
    """An order as people are told of it."""
    what = order.kind.value if order.before is None else f"{order.kind.value} before {order.before}"
    forced = " with --force" if order.force else ""
    return f"{what}{forced} since {moment(order.at)} by {order.issued_by}"


def issuer() -> str:
    """Who runs this command: ``user@machine``. A container may have no name for its user."""
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
    """By whoever runs this command, now. ``before``, ``force`` and ``lineage`` are for delete-records."""
    from ..state.epochs import Lineage
    from ..state.ids import FactId

    identity, known = FactId.of(ids.uuid()), lineage or Lineage()
    return OperatorOrder(partition, identity, kind, before, force, issuer(), clock.now_ms(), known)


def give(topic: TierTopic, follower: Follower, order: OperatorOrder) -> None:
    """Write it, and wait until the view has it.

    An append whose outcome nobody knows is looked up; UnknownOutcome when it is not there (it may land later).
    """
    from ..leader.termless import say
    from ..state.errors import UnknownOutcome

    try:
        say(topic, follower, order.partition, order)
    except UnknownOutcome:
        follower.require_fresh(follower.tier_partition(order.partition), 0)
        if order not in follower.partition(order.partition).orders:
            raise
