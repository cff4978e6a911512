"""``tierstate config``."""

from __future__ import annotations

import click

from .context import Context
from .flags import pass_context


@click.command("config", epilog="Example: tierstate config --set copy.concurrency=8")
@pass_context
def command(context: Context) -> None:
    """Show the effective settings and where each came from. Secrets are hidden."""
    from ..runtime.effective_settings import effective

    rows = effective(context.settings)
    document = {row.key: {"value": row.value, "origin": row.origin} for row in rows}
    context.output.table(("key", "value", "origin"), rows, document)
