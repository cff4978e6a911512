"""``tierstate check``: check everything that an agent needs, before the agent starts."""

from __future__ import annotations

import click

from .context import Context
from .flags import pass_context


@click.command("check", epilog="Example: tierstate check --config /etc/tierstate/tierstate.toml")
@pass_context
def command(context: Context) -> None:
    """Check settings, broker, log folders, store and topic before anything starts.

    Exit code 1 when one of them is not fit for an agent, 4 when facts of the tier-state topic are lost. A warning, as
    of a pattern that matches no topic, changes no exit code. What could not be asked has the state -. Each row is
    printed as it ends, and has a deadline: what does not answer by then is wrong.
    """
    from ..app.operating.checks import Row, checked
    from ..runtime.settings import needed_by_agent
    from ..state.errors import Difference, TierStateLost

    rows: list[Row] = []
    with context.connected(*needed_by_agent(context.settings)) as connection:
        if not context.as_json:
            context.output.row(COLUMNS, WIDTHS)
        for row in checked(connection):
            rows.append(row)
            if not context.as_json:
                context.output.row((row.check, row.state, row.detail), WIDTHS)
    if context.as_json:
        context.output.document(
            [
                {"check": each.check, "ok": each.state != "wrong", "state": each.state, "detail": each.detail}
                for each in rows
            ]
        )
    wrong = [each.check for each in rows if each.state == "wrong"]
    if any(each.facts_lost for each in rows):
        raise TierStateLost("facts are lost", wrong=",".join(wrong))
    if wrong:
        raise Difference("not ready for an agent", wrong=",".join(wrong))


COLUMNS, WIDTHS = ("check", "state", "detail"), (len("tier-state topic"), len("warning"), 0)
