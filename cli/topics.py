"""``tierstate topics``."""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .context import Context
from .flags import declare, view_source
from .reading import gateway_client

if TYPE_CHECKING:
    from ..app.looking.partition_facts import PartitionFacts
    from ..app.opening.bucket_connection import BucketConnection
    from ..app.opening.kip405_connection import Kip405Connection

COLUMNS = ("topic", "partitions", "remote_segments", "remote_bytes", "remote_records", "partitions_in_trouble")


@declare("topics --json")
@view_source()
def command(context: Context) -> None:
    """List the tiered topics: what both tiers hold, and how many partitions are in trouble.

    `tierstate status` has the same topics, and names the trouble.
    """
    from ..app.looking.overview import topics_now
    from ..app.opening.connection import Connection

    if context.gateway is not None:
        with closing(gateway_client(context)) as client:
            rows = sorted(client.summaries(), key=lambda each: each["topic"])
    else:
        with context.reading() as connection:
            if isinstance(connection, Connection):
                rows = [asdict(each) for each in topics_now(connection, gone=True)]
            else:
                rows = _of_view(connection)
    document = [{name: each[name] for name in COLUMNS} for each in rows]
    columns = ("topic", "partitions", "remote segments", "remote bytes", "remote records", "in trouble")
    context.output.table(columns, [tuple(each.values()) for each in document], document)


def _of_view(connection: BucketConnection | Kip405Connection) -> list[dict[str, Any]]:
    """Return the topics of a view without agents. Trouble that only a broker shows, as a gap, is not shown."""
    from ..app.looking.partition_facts import look_at_past

    past = connection.view()
    names = {described.topic_id: described.name for described in connection.control.topics()}
    facts: dict[str, list[PartitionFacts]] = defaultdict(list)
    for partition in past.partitions():
        view = past.partition(partition)
        name = names.get(partition.topic_id, f"{view.topic or 'unknown'} (older, id {partition.topic_id})")
        facts[name].append(look_at_past(view, name))
    return [_summary(name, partitions) for name, partitions in sorted(facts.items())]


def _summary(name: str, partitions: list[PartitionFacts]) -> dict[str, Any]:
    records = [each.remote_records for each in partitions]
    return {
        "topic": name,
        "partitions": len(partitions),
        "remote_segments": sum(each.remote_segments for each in partitions),
        "remote_bytes": sum(each.remote_bytes for each in partitions),
        "remote_records": None if None in records else sum(each or 0 for each in records),
        "partitions_in_trouble": sum(
            bool(each.gaps or each.degraded or each.holds or each.contradictions) for each in partitions
        ),
    }
