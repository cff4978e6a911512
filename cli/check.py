"""``tierstate check``: everything an agent needs, before it starts."""

from __future__ import annotations

import click

from .context import Context
from .flags import pass_context


@click.command("check", epilog="Example: tierstate check --config /etc/tierstate/tierstate.toml")
@pass_context
def command(context: Context) -> None:
    """Check settings, broker, log folders, store and topic before anything starts (for ExecStartPre).

    Exit code 1 when one of them is not fit for an agent, 4 when facts of the tier-state topic are lost. A warning, as
    of a pattern that matches no topic, changes no exit code. What could not be asked has the state -.
    """
    from ..app.checks import NotAsked, Warned, checks
    from ..state.errors import Difference, TierstateError, TierStateLost

    with context.connected("kafka.bootstrap.servers", "store.url", "agent.log_dirs") as connection:
        rows: list[tuple[str, str, str]] = []
        lost = False
        for name, look in checks(connection):
            try:
                detail = look()
                state = "warning" if isinstance(detail, Warned) else "-" if isinstance(detail, NotAsked) else "ok"
                rows.append((name, state, detail))
            except TierstateError as error:
                rows.append((name, "wrong", str(error)))
                lost = lost or isinstance(error, TierStateLost)
    document = [
        {"check": name, "ok": state != "wrong", "state": state, "detail": detail} for name, state, detail in rows
    ]
    context.output.table(("check", "state", "detail"), rows, document)
    wrong = [name for name, state, _ in rows if state == "wrong"]
    if lost:
        raise TierStateLost("facts are lost", wrong=",".join(wrong))
    if wrong:
        raise Difference("not ready for an agent", wrong=",".join(wrong))
