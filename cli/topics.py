"""``tierstate topics``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from .context import Context
from .flags import from_bucket, pass_context
from .gateway_access import gateway_client

if TYPE_CHECKING:
    from ..app.bucket_connection import BucketConnection
    from ..app.connection import Connection
    from ..app.partition_facts import PartitionFacts


@click.command("topics", epilog="Example: tierstate topics --json")
@from_bucket()
@pass_context
def command(context: Context) -> None:
    """List the tiered topics: what both tiers hold, and what is wrong anywhere."""
    if context.gateway is not None:
        _show(context, _of_gateway(context))
        return
    rows: dict[str, list[PartitionFacts]] = defaultdict(list)
    with context.reading() as connection:
        for each in _looked_at(connection):
            rows[each.topic].append(each)
    _show(context, {name: [each.as_json() for each in partitions] for name, partitions in sorted(rows.items())})


def _show(context: Context, topics: dict[str, list[dict[str, Any]]]) -> None:
    """Each topic's partitions, as `describe` prints them."""
    document = [_summary(name, partitions) for name, partitions in topics.items()]
    columns = ("topic", "partitions", "remote segments", "remote bytes", "remote records", "in trouble")
    context.output.table(columns, [tuple(each.values()) for each in document], document)


def _summary(name: str, partitions: list[dict[str, Any]]) -> dict[str, Any]:
    trouble = ("gaps", "degraded", "holds", "contradictions")
    return {
        "topic": name,
        "partitions": len(partitions),
        "remote_segments": sum(each["remote_segments"] for each in partitions),
        "remote_bytes": sum(each["remote_bytes"] for each in partitions),
        "remote_records": sum(each["remote_records"] for each in partitions),
        "partitions_in_trouble": sum(any(each[name] for name in trouble) for each in partitions),
    }


def _of_gateway(context: Context) -> dict[str, list[dict[str, Any]]]:
    with closing(gateway_client(context)) as client:
        return {name: client.described(name) for name in sorted(client.topics())}


def _looked_at(connection: Connection | BucketConnection) -> Iterator[PartitionFacts]:
    from ..app.bucket_connection import BucketConnection
    from ..app.partition_facts import look_at, look_at_past
    from ..app.partitions import both_tiers_now

    if isinstance(connection, BucketConnection):
        past = connection.view()
        names = {described.topic_id: described.name for described in connection.control.topics()}
        for partition in past.partitions():
            known = past.partition(partition)
            older = f"{known.topic or 'unknown'} (older, id {partition.topic_id})"
            yield look_at_past(known, names.get(partition.topic_id, older))
        return
    follower = connection.view()
    names = {described.topic_id: described.name for described in connection.control.topics()}
    for partition in follower.partitions():
        name = names.get(partition.topic_id)
        bounds, view = both_tiers_now(connection.control, follower, name, partition)
        yield look_at(view, bounds, name or f"{view.topic or 'unknown'} (gone, id {partition.topic_id})")
