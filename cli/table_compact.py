"""``tierstate table compact``."""

from __future__ import annotations

import click

from ..runtime.clock import SystemClock
from ..state.offsets import TimestampMs
from .context import Context
from .flags import declare
from .lake import catalog_of
from .parameter_types import DURATION

ORPHAN_AGE_MS = 86_400_000
"""A day, longer than any commit attempt takes. Older files that no snapshot names belong to no running attempt."""


@declare("table compact kafka.orders --execute", name="compact", execute=False)
@click.argument("table")
@click.option("--keep-snapshots", type=click.IntRange(1), default=10, show_default=True, help="The newest, at least.")
@click.option("--older-than", type=DURATION, help="Snapshots that may go; without it `table.snapshot_age`.")
def compact(context: Context, table: str, keep_snapshots: int, older_than: float | None, execute: bool) -> None:
    """Make large files of small ones, expire old snapshots, and remove what dead attempts left for a day.

    Rows stay the same: each new file is read again and compared with the files that it replaces. A second run does
    nothing.
    """
    now = SystemClock().now_ms()
    with catalog_of(context) as catalog, context.output.progress("compacting") as advance:
        from ..lake.table_metadata import foreign_metadata
        from ..lake.table_open import fresh_attempt
        from ..lake.table_snapshots import expire, old_snapshots
        from ..lake.table_upkeep import compact as compact_files
        from ..lake.table_upkeep import strays, sweep

        lake_table = catalog.table(table)
        files = compact_files(lake_table, fresh_attempt, execute=execute)
        age = context.settings.table.snapshot_age if older_than is None else older_than
        snapshots = old_snapshots(lake_table, keep_snapshots, TimestampMs(now - int(age * 1000)))
        expired = execute and expire(lake_table, snapshots)
        left = strays(lake_table, TimestampMs(now - ORPHAN_AGE_MS))
        unknown = [each.url for each in foreign_metadata(lake_table)]
        if execute:
            sweep(lake_table, left, advance)
    rows = [
        ("small files", files.small),
        ("large files of them", files.large),
        ("commits", files.commits),
        ("snapshots expired" if expired or not execute else "snapshots not expired", len(snapshots)),
        ("files removed", len(left)),
        ("bytes removed", sum(each.bytes for each in left)),
    ]
    counts = {name.replace(" ", "_"): value for name, value in rows}
    urls = [each.url for each in left]
    more = {"files": urls, "unknown_metadata": unknown, "executed": execute}
    context.output.table(("what", "count"), rows, {"table": lake_table.name, **counts, **more})
    for url in unknown:
        context.output.note(
            f"the catalog does not know {url}; the files that it names stay. Another catalog may keep this table, this"
            " catalog may be restored from a backup (`tierstate table repair`), or a writer died during its commit"
        )
    if not execute:
        for url in urls:
            context.output.note(f"would remove {url}")
        context.output.note("nothing was done: --execute does it")
