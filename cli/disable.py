"""``tierstate disable``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .context import Context
from .flags import acts, pass_context
from .topic_argument import TopicArgument, TopicType

if TYPE_CHECKING:
    from ..broker.control import BrokerControl
    from ..state.partition_view import PartitionView

STOPS = "Copying and trimming stop: from then on the broker keeps what its own retention.* keeps."
KEEPS = "The remote tier stays readable, and expires by the topic's retention as before."
DELETES = (
    "The log start moves to where the broker's own log begins, and what is remote below it is deleted: nobody reads it "
    "again. The rest of the remote tier goes as the broker's log start moves on."
)
BACK = "`tierstate resume` takes the order back, not what is deleted."


@click.command("disable", epilog="Example: tierstate disable orders --remote keep --execute")
@click.argument("topic", type=TopicType(partition=False))
@click.option(
    "--remote", type=click.Choice(["keep", "delete"]), required=True, help="What becomes of what is remote already."
)
@acts(unasked=False)
@pass_context
def command(context: Context, topic: TopicArgument, remote: str, execute: bool) -> None:
    """Order every agent to tier a topic no more, and to keep or to delete its remote tier."""
    from ..state.facts import OrderKind
    from .standing_order import order_partitions

    deletes = remote == "delete"
    kind = OrderKind.DISABLE_DELETE if deletes else OrderKind.DISABLE_KEEP
    if not order_partitions(context, topic, kind, execute, _going if deletes else _kept):
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
