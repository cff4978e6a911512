"""``tierstate table show``."""

from __future__ import annotations

import click

from ..state.errors import InvalidRequest
from .catalog import catalog_of, imported_lake
from .context import Context
from .flags import pass_context
from .table_list import show_made

WHERE = {
    "pyiceberg": "Python, with pyiceberg",
    "duckdb": "DuckDB, by the files that pyiceberg plans",
    "spark": "Spark: spark-defaults.conf, or --conf",
    "trino": "Trino: etc/catalog/tierstate.properties",
}


@click.command("show", epilog="Example: tierstate table show kafka.orders --catalog")
@click.argument("name", metavar="TABLE", required=False)
@click.option("--catalog", is_flag=True, help="Show how pyiceberg, DuckDB, Spark and Trino open the catalog instead.")
@pass_context
def show_one(context: Context, name: str | None, catalog: bool) -> None:
    """Show a table, or with --catalog what to paste to read the tables elsewhere. Secrets are hidden."""
    if not catalog:
        if name is None:
            raise InvalidRequest("a table is needed, as kafka.orders, or --catalog")
        with catalog_of(context) as opened:
            show_made(context, opened.table(name))
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
