"""``tierstate table list``."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from ..state.errors import TierstateError, Unavailable
from .catalog import NEEDED, catalog_of
from .context import Context
from .flags import pass_context

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..fetch.planned_split import Skipped
    from ..lake.table import LakeTable
    from ..lake.table_follow import Look

OF_TABLE = ("table", "topic", "topic_id", "isolation", "keep", "keys", "values", "version", "ends")
"""``keys``, ``values``: their format, or empty for bytes. ``version``: of the columns."""
OF_LOG = ("lag", "skipped", "state", "reason")
"""``skipped``: offsets that neither tier has, as a person accepted."""


@click.command("list", epilog="Example: tierstate table list --json")
@pass_context
def show(context: Context) -> None:
    """List the tables that follow topics, how far each is, and why one cannot go on.

    State: current, behind, stopped (it cannot go on: see the reason), or unknown (brokers or store do not answer).
    """
    with catalog_of(context) as catalog, ExitStack() as opened:
        look = _looker(context, opened)
        rows = []
        for name in catalog.ours():
            row, state, reason = (name, *[""] * (len(OF_TABLE) - 1)), "stopped", ""
            lag: int | str = ""
            lost = ""
            try:
                table = catalog.table(name)
                row = _row(table)
                found, skipped = look(table)
                lag, state = found.lag, "behind" if found.lag or found.lost else "current"
                lost = " ".join(f"{gap.partition}:{gap.start}..{gap.end - 1}" for gap in skipped)
                for failure in found.waiting.values():
                    raise failure
            except Unavailable as error:
                state, reason = "unknown", str(error)
            except TierstateError as error:
                reason = str(error)
            rows.append((*row, lag, lost, state, reason))
    context.output.table((*OF_TABLE, *OF_LOG), rows)


def show_made(context: Context, table: LakeTable) -> None:
    """Show a table that was just created."""
    context.output.table(OF_TABLE, [_row(table)])


def _looker(context: Context, opened: ExitStack) -> Callable[[LakeTable], tuple[Look, list[Skipped]]]:
    """Return what compares a table with its topic. It raises the reason where brokers or settings are missing."""
    from ..lake.table_follow import look_at, require_tiered
    from ..lake.table_open import log_of, reads_of

    try:
        connection = opened.enter_context(context.connected(*NEEDED))
        reader = connection.reader(connection.view(None))
    except TierstateError as error:
        failure = Unavailable("the topics cannot be looked at", reason=str(error))

        def fail(table: LakeTable) -> tuple[Look, list[Skipped]]:
            raise failure

        return fail
    reads = reads_of(connection.settings, connection.clock)

    def look(table: LakeTable) -> tuple[Look, list[Skipped]]:
        log = log_of(reader, table.facts, reads, local=False)
        require_tiered(table, log)
        found = look_at(table, log)
        reaches = found.place.partitions.items()
        return found, [gap for number, reach in reaches for gap in log.skipped(number, reach.start, reach.end)]

    return look


def _row(table: LakeTable) -> tuple[Any, ...]:
    facts = table.facts
    ends = " ".join(f"{number}:{reach.end}" for number, reach in sorted(table.place().partitions.items()))
    formats = [form.format if form else "" for form in (facts.columns.key, facts.columns.value)]
    identity = (table.name, facts.topic, str(facts.topic_id), facts.isolation.value, facts.keep)
    return (*identity, *formats, facts.version, ends)
