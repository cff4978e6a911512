"""What `pause`, `resume` and `disable` share: one order a partition, and what became of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..rules.orders import standing
from ..state.facts import OrderKind
from .context import Context
from .give_order import give, new_order, told
from .opened import following, opened_broker, opened_topic, user_partitions
from .topic_argument import TopicArgument

if TYPE_CHECKING:
    from ..broker.control import BrokerControl
    from ..broker.tier_topic import TierTopic
    from ..follower.follower import Follower
    from ..state.partition_view import PartitionView

More = Callable[["PartitionView", "BrokerControl"], dict[str, Any]]
"""What a command shows of a partition beside the order."""


def needed(view: PartitionView, kind: OrderKind) -> bool:
    """Whether this order would change what stands; resume is what stands where nobody ordered anything."""
    now = standing(view)
    return kind is not (OrderKind.RESUME if now is None else now.kind)


def order_partitions(
    context: Context, argument: TopicArgument, kind: OrderKind, execute: bool, more: More | None = None
) -> bool:
    """Order this for each partition where something else stands, and show what became of each, also when one fails.

    Whether any partition needed it. Raises UnknownTopic, NotTiered, and what stopped it halfway.
    """
    with opened_broker(context) as broker:
        partitions = user_partitions(broker, argument.topic, argument.partition)
        with opened_topic(context) as topic, following(context, topic, partitions) as follower:
            views = [follower.partition(each) for each in partitions]
            _refuse_untiered(context, argument, views)
            extra = [more(view, broker.control) if more else {} for view in views]
            wanted = [view for view in views if needed(view, kind)]
            outcomes: dict[int, str] = {}
            try:
                if execute:
                    order_each(topic, follower, wanted, kind, outcomes)
            finally:
                _show(context, argument.topic, views, kind, execute, outcomes, extra)
            return bool(wanted)


def _refuse_untiered(context: Context, argument: TopicArgument, views: list[PartitionView]) -> None:
    from ..state.errors import NotTiered

    if context.settings.tiering.covers(argument.topic) or any(view.others or view.segments for view in views):
        return
    raise NotTiered("no fact is about it, and tiering.include does not name it: no agent obeys", **argument.facts)


def order_each(
    topic: TierTopic, follower: Follower, views: list[PartitionView], kind: OrderKind, outcomes: dict[int, str]
) -> None:
    """One after another; the first that fails ends it. ``outcomes`` (by partition number) says how far it came."""
    from ..runtime.clock import SystemClock
    from ..runtime.id_source import RandomIds
    from ..state.errors import UnknownOutcome

    for view in views:
        number = view.partition.partition
        outcomes[number] = "failed"
        try:
            give(topic, follower, new_order(view.partition, kind, SystemClock(), RandomIds()))
        except UnknownOutcome:
            outcomes[number] = "unknown"
            raise
        outcomes[number] = "ordered"


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
            "stood": told(now) if now else None,
            "order": kind.value,
            "outcome": outcomes.get(number, rest) if needed(view, kind) else "stands already",
        }
        rows.append(shown | more)
    columns = list(rows[0])
    documents = [row | {"executed": execute} for row in rows]
    context.output.table(columns, [list(row.values()) for row in rows], documents)
