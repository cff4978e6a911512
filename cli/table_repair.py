"""``tierstate table repair``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..state.errors import Difference
from .context import Context
from .flags import declare
from .lake import NEEDED, catalog_of
from .table_look import cell

if TYPE_CHECKING:
    from ..lake.table import LakeTable
    from ..lake.table_catalog import LakeCatalog


@declare("table repair kafka.orders --execute", name="repair", execute=False)
@click.argument("table")
@click.option("--location", metavar="URL", help="Folder of the table, where the catalog cannot load it or lost it.")
@click.option("--local", is_flag=True, help="The local tier counts too, where the table followed it (follow --local).")
def repair(context: Context, table: str, location: str | None, local: bool, execute: bool) -> None:
    """Bring a table back after a restored catalog, or after another engine expired its snapshots.

    A catalog that is older than the table's files gets the newest metadata file that was made from its own. Stop other
    catalogs that keep this table first. A place that no snapshot has is found from the rows, and every row is compared
    with the log before anything is written. Exit code 1 where they differ.
    """
    with catalog_of(context, new=location is not None) as catalog, context.reading(*NEEDED, brokers=True) as connection:
        from ..lake.table_open import fresh_attempt, open_log
        from ..lake.table_repair import repair as repair_table
        from ..lake.table_status import ends_of

        target, metadata = _newest(catalog, table, location)
        with open_log(connection, target.facts, context.output.note, local=local) as (log, keep):
            if execute and metadata is not None:
                catalog.point(table, metadata)
                target = catalog.table(table)
            done = repair_table(target, log, fresh_attempt, execute=execute, keep=keep)
    ends = [] if done.place is None else ends_of(done.place, target.facts.columns)
    rows = [
        ("table", target.name),
        ("metadata", metadata or "is the newest"),
        ("place", cell(ends) or "is known"),
        ("rows compared", 0 if done.checked is None else sum(each.rows for each in done.checked.partitions)),
    ]
    findings = [] if done.checked is None else done.checked.findings
    answer = {"table": target.name, "metadata": metadata, "ends": ends, "findings": [each.problem for each in findings]}
    context.output.table(("what", "value"), rows, {**answer, "executed": execute and not findings})
    for finding in findings:
        context.output.note(f"partition {finding.partition}: {finding.problem}")
    if findings:
        raise Difference("the rows of the table are not its log: its place was not written", table=target.name)
    if not execute:
        context.output.note("nothing was done: --execute does it")


def _newest(catalog: LakeCatalog, name: str, location: str | None) -> tuple[LakeTable, str | None]:
    """Return the table by its newest metadata, or by the metadata at ``location``, and the URL of that metadata.
    The URL is None if the catalog already names the newest metadata and there is no ``location``."""
    from ..lake.table_repair import newer_metadata

    if location is not None:
        lake_table = catalog.table_at(name, location)
        return lake_table, lake_table.iceberg.metadata_location
    table = catalog.table(name)
    newer = newer_metadata(table)
    if newer is None:
        return table, None
    return catalog.table_with(name, newer, table.iceberg.io), newer.url
