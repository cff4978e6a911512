"""``tierstate status``."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ..runtime.units import about_size
from .context import Context
from .flags import pass_context
from .gateway_access import gateway_client

UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))

if TYPE_CHECKING:
    from ..app.overview import TopicOverview


@click.command("status", epilog="Example: tierstate status")
@pass_context
def command(context: Context) -> None:
    """All tiered topics in one table, those in trouble first: sizes, what waits to be copied, what is wrong.

    Agents are asked for what only they know; one that does not answer is trouble. The console shows the same table.
    Exit code 4 when facts of the tier-state topic are lost; a topic without any is looked for in the bucket.
    """
    from ..app.overview import FACTS_LOST
    from ..state.errors import TierStateLost

    if context.gateway is not None:
        with closing(gateway_client(context)) as client:
            document = client.summaries()
    else:
        context.refuse_bucket("status")
        document = [asdict(each) for each in _looked_at(context)]
    columns = ("topic", "partitions", "remote", "local", "freed", "to copy", "waits", "trouble")
    context.output.table(columns, [_row(each) for each in document], document)
    lost = [each["topic"] for each in document if FACTS_LOST in each["trouble"]]
    if lost:
        raise TierStateLost("facts are lost: tierstate describe shows the way out", topics=",".join(lost))


def _row(found: dict[str, Any]) -> tuple[str, ...]:
    words = [*found["trouble"], *(f"order: {each}" for each in found["orders"])]
    many = f" ({found['partitions_in_trouble']} partitions)" if found["partitions_in_trouble"] > 1 else ""
    waits = found["copy_lag_seconds"]
    return (
        found["topic"],
        str(found["partitions"]),
        _size(found["remote_bytes"]),
        _size(found["local_log_bytes"]),
        _size(found["freed_bytes"]),
        _size(found["copy_lag_bytes"]),
        "unknown" if waits is None else _duration(waits) if found["copy_lag_segments"] else "-",
        "; ".join(words) + many if words else "-",
    )


def _size(size: int | None) -> str:
    """About: ``--json`` has the bytes."""
    return "unknown" if size is None else about_size(size)


def _duration(seconds: float) -> str:
    unit, size = next(((unit, size) for unit, size in UNITS if seconds >= size), UNITS[-1])
    return f"{seconds / size:.0f} {unit}"


def _looked_at(context: Context) -> list[TopicOverview]:
    from collections import defaultdict

    from ..app.agent_boards import AgentBoards
    from ..app.connection import Connection
    from ..app.lost_state import without_facts
    from ..app.overview import addresses_of, overview, worst_first
    from ..state.partition_view import PartitionView

    with context.reading() as connection:
        assert isinstance(connection, Connection)
        view = connection.view()
        names = {described.topic_id: described.name for described in connection.control.topics()}
        with closing(AgentBoards(connection.clock)) as boards:
            said = boards.now(sorted(addresses_of(view.partition(each) for each in view.partitions())))
        for number in sorted({view.tier_partition(each) for each in view.partitions()}):
            view.require_fresh(number, 0)  # later than the agents' answers: see `overview`
        views: dict[str, list[PartitionView]] = defaultdict(list)
        for partition in view.partitions():
            if partition.topic_id in names:
                views[names[partition.topic_id]].append(view.partition(partition))
        lost = without_facts(connection, view)
        for each in lost:
            views[names[each.topic_id]].append(view.partition(each))
    return worst_first([overview(name, found, said, lost) for name, found in views.items()])
