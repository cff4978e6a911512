"""``tierstate keep-prefix``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from ..state.errors import Difference
from ..state.offsets import moment
from .context import Context
from .flags import declare

if TYPE_CHECKING:
    from ..app.operating.prefix import Sides


@declare("keep-prefix --execute", execute=False)
def command(context: Context, execute: bool) -> None:
    """Show which agents write below the bucket prefix, of this cluster and of copies of it, and keep it for this one.

    With --execute the agents of this cluster go on within a minute, and an agent that deletes nothing after a start
    waits no longer. Agents of another cluster neither copy nor delete below this prefix from then on, also after a
    restart: give that cluster another store.url. It can go on reading what was copied with --store. On the wrong side,
    --execute stops production; what it copies from then on is never read by this cluster.
    Exit code 1 when another cluster writes here and nothing was decided.
    """
    from ..app.operating.prefix import look_at_sides, take_prefix

    with context.alone("keep-prefix", execute) as (connection, _):
        sides = look_at_sides(connection)
        if execute:
            take_prefix(connection, sides)
    _show(context, sides, execute)
    if not execute and (sides.strange or (sides.keeper and not sides.kept_here)):
        raise Difference("another cluster writes below this prefix, or was given it", others=len(sides.strange))


def _show(context: Context, sides: Sides, executed: bool) -> None:
    rows = [
        (
            "this cluster" if side.ours else "another cluster",
            side.beat.writer,
            side.beat.host,
            side.beat.place,
            moment(side.written_at),
            "stopped" if side.beat.stopped else "",
            side.beat.process,
        )
        for side in sides.sides
    ]
    keeper = None if sides.keeper is None else {**asdict(sides.keeper), "others": sides.keeper.others.split()}
    columns = ("of", "writer", "host", "place", "written", "state", "process")
    heartbeats = [{**asdict(side.beat), "written_at": side.written_at, "ours": side.ours} for side in sides.sides]
    document = {"executed": executed, "heartbeats": heartbeats, "decision": keeper, "kept_here": sides.kept_here}
    context.output.table(columns, rows, document)
    if sides.keeper is not None:
        side = "this cluster" if sides.kept_here else "another cluster"
        context.output.note(f"{moment(sides.keeper.at)}: {sides.keeper.by} gave the prefix to {side}")
    if executed:
        context.output.note("this cluster keeps the prefix: its agents go on within a minute")
    else:
        context.output.note("nothing was decided: --execute keeps the prefix for this cluster")
