"""``tierstate agent``: the agent next to one broker."""

from __future__ import annotations

import os
import sys

import click

from .context import Context
from .flags import declare
from .serving import serve, service_logs


@declare("agent --config /etc/tierstate/tierstate.toml")
@click.option("--once", is_flag=True, help="Do what there is to do now, then end.")
def command(context: Context, once: bool) -> None:
    """Copy, and trim, the partitions that this broker leads; with agent.source=fetch those of every broker.

    Ends on SIGTERM after the operations in progress.
    """
    from ..app.operating.agent import open_agent
    from ..follower.move import StoreMoved
    from ..runtime.allocator import return_large_buffers
    from ..runtime.settings import needed_by_agent

    return_large_buffers()
    settings = context.settings_with(*needed_by_agent(context.settings))
    logger = service_logs(context)
    try:
        with open_agent(settings, logger, once=once) as services:
            context.deadline.cancel()
            serve(context, services, logger.warning)
    except StoreMoved as moved:
        if not context.own_process:
            raise
        logger.warning("agent starts again", reason=str(moved))
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # a supervisor sees one process
