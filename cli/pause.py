"""``tierstate pause``."""

from __future__ import annotations

import click

from .context import Context
from .flags import acts, pass_context
from .topic_argument import TopicArgument, TopicType

MEANS = (
    "Nothing of it is copied, trimmed, expired, swept or erased before `tierstate resume`; producing and reading go "
    "on. Kafka's own retention.* goes on too: what it takes before it is copied is lost."
)


@click.command("pause", epilog="Example: tierstate pause orders:0")
@click.argument("topic", type=TopicType())
@acts(unasked=True)
@pass_context
def command(context: Context, topic: TopicArgument, execute: bool) -> None:
    """Order every agent to leave a topic or partition as it is, until `tierstate resume`.

    It takes the place of an order to disable. A paused partition also carries out no delete-records.
    """
    from ..state.facts import OrderKind
    from .standing_order import order_partitions

    if not order_partitions(context, topic, OrderKind.PAUSE, execute=execute):
        context.output.note("paused already: nothing was done")
    elif not execute:
        context.output.note("nothing was done: --dry-run")
    else:
        context.output.note(MEANS)
