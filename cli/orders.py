"""``tierstate pause``, ``resume`` and ``disable``: one order for each partition of a topic, and the outcomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..rules.orders import standing
from ..state.facts import OrderKind
from ..state.partition_view import PartitionView
from .context import Context
from .flags import declare
from .parameter_types import TopicArgument

if TYPE_CHECKING:
    from ..broker.control import BrokerControl

MEANS = (
    "Nothing of it is copied, trimmed, expired, swept or erased before `tierstate resume`; producing and reading go "
    "on. Kafka's own retention.* goes on too: what it takes before it is copied is lost."
)
STOPS = "Copying and trimming stop: from then on the broker keeps what its own retention.* keeps."
KEEPS = "The remote tier stays readable, and expires by the topic's retention as before."
DELETES = (
    "The log start moves to where the broker's own log begins, and what is remote below it is deleted: nobody reads it "
    "again. The rest of the remote tier goes as the broker's log start moves on."
)
BACK = "`tierstate resume` takes the order back, not what is deleted."

More = Callable[["PartitionView", "BrokerControl"], dict[str, Any]]
"""A function that returns further columns of a partition, by name."""


@declare("pause orders:0", topic="T[:P]", execute=True)
def pause(context: Context, topic: TopicArgument, execute: bool) -> None:
    """Order every agent to leave a topic or partition as it is, until `tierstate resume`.

    It takes the place of an order to disable. A paused partition also carries out no delete-records.
    """
    if not _order(context, topic, OrderKind.PAUSE, execute=execute):
        context.output.note("paused already: nothing was done")
    elif not execute:
        context.output.note("nothing was done: --dry-run")
    else:
        context.output.note(MEANS)


@declare("resume orders:0", topic="T[:P]", execute=True)
def resume(context: Context, topic: TopicArgument, execute: bool) -> None:
    """Let agents go on with a topic or partition that was paused or disabled.

    Objects that `disable --remote delete` deleted before stay deleted.
    """
    if not _order(context, topic, OrderKind.RESUME, execute=execute):
        context.output.note("neither paused nor disabled: nothing was done")
    elif not execute:
        context.output.note("nothing was done: --dry-run")


@declare("disable orders --remote keep --execute", topic="T", execute=False)
@click.option(
    "--remote", type=click.Choice(["keep", "delete"]), required=True, help="What becomes of what is remote already."
)
def disable(context: Context, topic: TopicArgument, remote: str, execute: bool) -> None:
    """Order every agent to stop tiering a topic, and to keep or to delete its remote tier."""
    deletes = remote == "delete"
    kind = OrderKind.DISABLE_DELETE if deletes else OrderKind.DISABLE_KEEP
    if not _order(context, topic, kind, execute, _going if deletes else _kept):
        context.output.note("disabled like this already: nothing was done")
        return
    context.output.note(" ".join((STOPS, DELETES if deletes else KEEPS, BACK)))
    if not execute:
        context.output.note("nothing was done: --execute does it")


def _kept(view: PartitionView, broker: BrokerControl) -> dict[str, Any]:
    return {"remote_segments": len(view.readable), "remote_bytes": view.remote_bytes}


def _going(view: PartitionView, broker: BrokerControl) -> dict[str, Any]:
    """Return `_kept`, and counts of the segments that are deleted at once. They are None if the broker is silent."""
    from ..app.opening.partitions import bounds_if_known

    bounds = bounds_if_known(broker, view.topic, view.partition)
    start, answered = bounds.local_start if bounds else None, bounds is not None
    going = [segment for segment in view.readable if start is not None and segment.offsets.end < start]
    return _kept(view, broker) | {
        "log_start_offset": view.log_start,
        "local_log_start_offset": start,
        "segments_go": len(going) if answered else None,
        "records_go": sum(segment.record_count for segment in going) if answered else None,
        "bytes_go": sum(segment.object_bytes for segment in going) if answered else None,
    }


def _order(context: Context, argument: TopicArgument, kind: OrderKind, execute: bool, more: More | None = None) -> bool:
    """Order ``kind`` for each partition whose order differs, if ``execute``, and show the outcome of each partition.

    Returns whether any partition needed the order. Raises UnknownTopic and NotTiered. An error while writing orders
    is raised after the outcomes are shown; later partitions get no order then.
    """
    from ..app.looking.partition_facts import describe_order
    from ..app.opening.partitions import partitions_of
    from ..app.operating.orders import needed, order_each, require_tiered

    with context.connected() as connection:
        broker = connection.broker.control
        partitions = partitions_of(broker, argument.topic, argument.partition)
        follower = connection.view(partitions)
        views = [follower.partition(each) for each in partitions]
        require_tiered(connection, argument.topic, views)
        affected = [view for view in views if needed(view, kind)]
        rest = "not tried" if execute else "would be ordered"
        rows: list[dict[str, Any]] = [
            {
                "topic": argument.topic,
                "partition": view.partition.partition,
                "stood": describe_order(order) if (order := standing(view)) else None,
                "order": kind.value,
                "outcome": rest if needed(view, kind) else "stands already",
                **(more(view, broker) if more else {}),
            }
            for view in views
        ]
        outcomes: dict[int, str] = {}
        try:
            if execute:
                order_each(connection.topic, follower, affected, kind, outcomes)
        finally:
            rows = [row | {"outcome": outcomes.get(row["partition"], row["outcome"])} for row in rows]
            documents = [row | {"executed": execute} for row in rows]
            context.output.table(list(rows[0]), [list(row.values()) for row in rows], documents)
        return bool(affected)
