"""``tierstate resume``."""

from __future__ import annotations

import click

from .context import Context
from .flags import acts, pass_context
from .topic_argument import TopicArgument, TopicType


@click.command("resume", epilog="Example: tierstate resume orders:0")
@click.argument("topic", type=TopicType())
@acts(unasked=True)
@pass_context
def command(context: Context, topic: TopicArgument, execute: bool) -> None:
    """Let agents go on with a topic or partition that was paused or disabled.

    What `disable --remote delete` has deleted meanwhile stays deleted.
    """
    from ..state.facts import OrderKind
    from .standing_order import order_partitions

    if not order_partitions(context, topic, OrderKind.RESUME, execute=execute):
        context.output.note("neither paused nor disabled: nothing was done")
    elif not execute:
        context.output.note("nothing was done: --dry-run")
