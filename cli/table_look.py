"""``tierstate table list`` and ``tierstate table show``."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from ..state.errors import InvalidRequest, TierstateError, Unavailable
from .context import Context
from .flags import declare
from .lake import NEEDED, catalog_of, imported_lake

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..fetch.planned_split import Skipped
    from ..lake.table import LakeTable
    from ..lake.table_follow import Look
    from ..lake.table_place import TablePlace

OF_TABLE = ("table", "topic", "topic_id", "isolation", "keep", "keys", "values", "version", "ends")
"""Columns from the table alone. ``keys``, ``values``: format, None for bytes. ``version``: version of the columns."""
OF_LOG = ("lag", "skipped", "state", "reason")
"""Columns that need the log. ``skipped`` lists ranges in neither tier whose loss a person accepted."""


@declare("table list --json", name="list")
def show(context: Context) -> None:
    """List the tables that follow topics, how far each is, and why one cannot go on.

    State: current, behind, stopped (it cannot go on: see the reason), or unknown (brokers or store do not answer).
    """
    with catalog_of(context) as catalog, ExitStack() as opened:
        look = _looker(context, opened)
        rows = []
        for name in catalog.ours():
            row: dict[str, Any] = dict.fromkeys((*OF_TABLE, *OF_LOG)) | {"table": name, "state": "stopped"}
            rows.append(row)
            try:
                table = catalog.table(name)
                row |= _of_table(table)
                progress, skipped = look(table)
                row |= {"lag": progress.lag, "skipped": [gap._asdict() for gap in skipped]}
                row["state"] = "behind" if progress.lag or progress.lost else "current"
                for failure in progress.waiting.values():
                    raise failure
            except Unavailable as error:
                row |= {"state": "unknown", "reason": str(error)}
            except TierstateError as error:
                row["reason"] = str(error)
    _show(context, (*OF_TABLE, *OF_LOG), rows)


def show_made(context: Context, tables: Sequence[LakeTable]) -> None:
    """Show tables that were just created, without a comparison with their log."""
    _show(context, OF_TABLE, [_of_table(table) for table in tables])


def ends_of(place: TablePlace) -> list[dict[str, int]]:
    """Return each partition with the end offset (exclusive) of its rows, as JSON objects."""
    return [{"partition": number, "end_offset": reach.end} for number, reach in sorted(place.partitions.items())]


def _show(context: Context, columns: Sequence[str], rows: list[dict[str, Any]]) -> None:
    context.output.table(columns, [[cell(row[name]) for name in columns] for row in rows], rows)


def cell(value: Any) -> object:
    """Return a value for people: a list of ranges or end offsets becomes one text, an empty list becomes None."""
    if not isinstance(value, list):
        return value
    ranges = (f"{each['start']}..{each['end'] - 1}" if "start" in each else each["end_offset"] for each in value)
    return " ".join(f"{each['partition']}:{range_}" for each, range_ in zip(value, ranges, strict=True)) or None


def _looker(context: Context, opened: ExitStack) -> Callable[[LakeTable], tuple[Look, list[Skipped]]]:
    """Return a function that compares a table with its topic, and returns its progress and the skipped ranges.

    If there is no connection (brokers, store or settings fail), the function raises Unavailable for every table.
    """
    from ..lake.table_follow import look_at, require_tiered
    from ..lake.table_open import log_of

    try:
        connection = opened.enter_context(context.reading(*NEEDED, brokers=True))
        reader = connection.reader(connection.view(None))
    except TierstateError as error:
        failure = Unavailable("the topics cannot be looked at", reason=str(error))

        def fail(table: LakeTable) -> tuple[Look, list[Skipped]]:
            raise failure

        return fail

    def look(table: LakeTable) -> tuple[Look, list[Skipped]]:
        log = log_of(connection.settings, reader, table.facts, local=False)
        require_tiered(table, log)
        progress = look_at(table, log)
        reaches = progress.place.partitions.items()
        return progress, [gap for number, reach in reaches for gap in log.skipped(number, reach.start, reach.end)]

    return look


def _of_table(table: LakeTable) -> dict[str, Any]:
    facts = table.facts
    formats = [form.format if form else None for form in (facts.columns.key, facts.columns.value)]
    identity = (table.name, facts.topic, str(facts.topic_id), facts.isolation.value, facts.keep)
    return dict(zip(OF_TABLE, (*identity, *formats, facts.version, ends_of(table.place())), strict=True))


WHERE = {
    "pyiceberg": "Python, with pyiceberg",
    "duckdb": "DuckDB, by the files that pyiceberg plans",
    "spark": "Spark: spark-defaults.conf, or --conf",
    "trino": "Trino: etc/catalog/tierstate.properties",
}


@declare("table show kafka.orders --catalog", name="show")
@click.argument("name", metavar="TABLE", required=False)
@click.option("--catalog", is_flag=True, help="Show how pyiceberg, DuckDB, Spark and Trino open the catalog instead.")
def show_one(context: Context, name: str | None, catalog: bool) -> None:
    """Show a table, or with --catalog what to paste to read the tables elsewhere. Secrets are hidden."""
    if not catalog:
        if name is None:
            raise InvalidRequest("a table is needed, as kafka.orders, or --catalog")
        with catalog_of(context) as opened:
            show_made(context, [opened.table(name)])
        return
    with imported_lake():
        from ..lake.engines import engines
        from ..lake.table_open import catalog_properties
    from ..runtime.effective_settings import MASK

    masked = context.settings.is_masked
    properties = {
        key: MASK if masked(f"catalog.{key}") else value
        for key, value in catalog_properties(context.settings, new=False).items()
    }
    texts = engines(properties, name or "kafka.orders")
    if context.as_json:
        context.output.document({"properties": properties, **texts})
        return
    for program, text in texts.items():
        context.output.line(f"# {WHERE[program]}")
        for line in text.splitlines():
            context.output.line(line)
        context.output.line()
