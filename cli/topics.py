"""``tierstate topics``."""

from __future__ import annotations

from collections import defaultdict

import click

from .context import Context
from .flags import pass_context


@click.command("topics", epilog="Example: tierstate topics --json")
@pass_context
def command(context: Context) -> None:
    """List the tiered topics: what both tiers hold, and what is wrong anywhere."""
    from ..app.partition_facts import PartitionFacts, look_at
    from ..app.partitions import both_tiers_now

    rows: dict[str, list[PartitionFacts]] = defaultdict(list)
    with context.connected() as connection:
        broker, follower = connection.broker.control, connection.view()
        names = {described.topic_id: described.name for described in broker.topics()}
        for partition in follower.partitions():
            name = names.get(partition.topic_id)
            bounds, view = both_tiers_now(broker, follower, name, partition)
            if name is None:
                name = f"{view.topic or 'unknown'} (gone, id {partition.topic_id})"
            rows[name].append(look_at(view, bounds, name))
    table, document = [], []
    for name, partitions in sorted(rows.items()):
        trouble = sum(1 for p in partitions if p.gaps or p.degraded or p.holds or p.contradictions)
        summary = {
            "topic": name,
            "partitions": len(partitions),
            "remote_segments": sum(p.remote_segments for p in partitions),
            "remote_bytes": sum(p.remote_bytes for p in partitions),
            "remote_records": sum(p.remote_records for p in partitions),
            "partitions_in_trouble": trouble,
        }
        document.append(summary)
        table.append(tuple(summary.values()))
    columns = ("topic", "partitions", "remote segments", "remote bytes", "remote records", "in trouble")
    context.output.table(columns, table, document)
