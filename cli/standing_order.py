"""The common part of `pause`, `resume` and `disable`: write one order for each partition and show the outcomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..app.looking.partition_facts import describe_order
from ..app.opening.partitions import partitions_of
from ..app.operating.orders import needed, order_each, require_tiered
from ..rules.orders import standing
from ..state.facts import OrderKind
from .context import Context
from .topic_argument import TopicArgument

if TYPE_CHECKING:
    from ..broker.control import BrokerControl
    from ..state.partition_view import PartitionView

More = Callable[["PartitionView", "BrokerControl"], dict[str, Any]]
"""A function that returns further columns of a partition, by name."""


def order_partitions(
    context: Context, argument: TopicArgument, kind: OrderKind, execute: bool, more: More | None = None
) -> bool:
    """Order ``kind`` for each partition whose order differs, if ``execute``, and show the outcome of each partition.

    Returns whether any partition needed the order. Raises UnknownTopic and NotTiered. An error while writing orders
    is raised after the outcomes are shown; later partitions get no order then.
    """
    with context.connected() as connection:
        broker = connection.broker.control
        partitions = partitions_of(broker, argument.topic, argument.partition)
        follower = connection.view(partitions)
        views = [follower.partition(each) for each in partitions]
        require_tiered(connection, argument.topic, views)
        extra = [more(view, broker) if more else {} for view in views]
        affected = [view for view in views if needed(view, kind)]
        outcomes: dict[int, str] = {}
        try:
            if execute:
                order_each(connection.topic, follower, affected, kind, outcomes)
        finally:
            _show(context, argument.topic, views, kind, execute, outcomes, extra)
        return bool(affected)


def _show(
    context: Context,
    topic: str,
    views: list[PartitionView],
    kind: OrderKind,
    execute: bool,
    outcomes: dict[int, str],
    extra: list[dict[str, Any]],
) -> None:
    rows = []
    for view, more in zip(views, extra, strict=True):
        number, now = view.partition.partition, standing(view)
        rest = "not tried" if execute else "would be ordered"
        shown: dict[str, Any] = {
            "topic": topic,
            "partition": number,
            "stood": describe_order(now) if now else None,
            "order": kind.value,
            "outcome": outcomes.get(number, rest) if needed(view, kind) else "stands already",
        }
        rows.append(shown | more)
    columns = list(rows[0])
    documents = [row | {"executed": execute} for row in rows]
    context.output.table(columns, [list(row.values()) for row in rows], documents)
