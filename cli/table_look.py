"""``tierstate table list`` and ``tierstate table show``."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..runtime.clock import SystemClock
from ..state.errors import InvalidRequest, TierstateError, Unavailable
from .context import Context
from .flags import declare
from .lake import NEEDED, catalog_of, imported_lake

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..lake.log import TopicLog
    from ..lake.table import LakeTable
    from ..lake.table_facts import TableFacts

LISTED = "table topic rows files lag lag_seconds state last_commit skipped reason".split()
"""Columns for people. JSON has all fields of `TableStatus`."""
OF_TABLE = (
    "table topic topic_id isolation keep keys values version partition_by sort_by upsert envelope route_by subject "
    "dead_letter metadata_prefix branch ends rows files last_commit"
).split()
"""Fields that need no log."""


@declare("table list --json", name="list")
def show(context: Context) -> None:
    """List the tables that follow topics: rows, files, how far each is behind, and why one cannot go on.

    State: current, behind, stopped (it cannot go on: see the reason), or unknown (brokers or store do not answer).
    """
    with catalog_of(context) as catalog, ExitStack() as opened:
        from ..lake.table_status import statuses

        rows = [asdict(each) for each in statuses(catalog, _logs(context, opened), SystemClock().now_ms)]
    _show(context, LISTED, rows)


def show_made(context: Context, tables: Sequence[LakeTable]) -> None:
    """Show tables without a comparison with their log, and the pace of a follower with these settings."""
    from ..lake.table_status import TableStatus

    settings = context.settings.table
    pace = {
        "commit_every": settings.commit_interval,
        "commit_bytes": settings.commit_bytes,
        "file_bytes": settings.file_bytes,
    }
    rows = [asdict(TableStatus.of_table(table)) for table in tables]
    documents = [{name: row[name] for name in OF_TABLE} | pace for row in rows]
    lines = [(name, cell(value)) for row in documents for name, value in row.items()]
    context.output.table(("what", "value"), lines, documents)


def _show(context: Context, columns: list[str], rows: list[dict[str, Any]]) -> None:
    context.output.table(columns, [[cell(row[name]) for name in columns] for row in rows], rows)


def cell(value: Any) -> object:
    """Return a value for people: a list of ranges or end offsets becomes one text, an empty list becomes None."""
    if isinstance(value, float):
        return round(value, 1)
    if not isinstance(value, list):
        return value
    ranges = (f"{each['start']}..{each['end'] - 1}" if "start" in each else each["end_offset"] for each in value)
    places = ("-".join(str(each[name]) for name in ("topic", "partition") if name in each) for each in value)
    return " ".join(f"{place}:{range_}" for place, range_ in zip(places, ranges, strict=True)) or None


def _logs(context: Context, opened: ExitStack) -> Callable[[TableFacts], TopicLog]:
    """Return a function that opens a table's log.

    If there is no connection (brokers, store or settings fail), the function raises Unavailable for every table.
    """
    from ..lake.table_open import broker_of, log_of

    try:
        connection = opened.enter_context(context.reading(*NEEDED, brokers=True))
        reader = connection.reader(connection.view(None))
    except TierstateError as error:
        failure = Unavailable("the topics cannot be looked at", reason=str(error))

        def fail(facts: TableFacts) -> TopicLog:
            raise failure

        return fail
    return partial(log_of, connection.settings, reader, broker_of(connection), local=False)


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
