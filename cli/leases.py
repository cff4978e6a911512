"""``tierstate leases``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ..state.offsets import moment
from .context import Context
from .flags import acts, pass_context
from .topic_argument import TopicArgument, TopicType

if TYPE_CHECKING:
    from ..follower.follower import Follower
    from ..state.ids import TopicIdPartition
    from ..state.termless_facts import ReaderLease

EXAMPLE = """\b
Example: tierstate leases orders:0
topic   partition  offsets  holder         expires_at            expires_in  id
orders  0          0..4711  spark job 993  2026-03-01T12:00:00Z  3h 12m      KzQeK0bVSB6RjzJm1yCqDw
"""


@click.command("leases", epilog=EXAMPLE)
@click.argument("topic", type=TopicType(), required=False)
@click.option("--end", metavar="ID", help="End this lease: what it keeps may be deleted under its reader.")
@acts(unasked=False)
@pass_context
def command(context: Context, topic: TopicArgument | None, end: str | None, execute: bool) -> None:
    """Who pins what of the remote tier, and until when.

    A lease keeps the objects of segments that are being read. It delays the deletion of objects, never the log start.
    A topic that is gone is named by its topic id.
    """
    from ..app.orders import take_back
    from ..app.partitions import follow_facts
    from ..state.errors import InvalidRequest
    from ..state.keys import key_of

    with context.connected() as connection:
        name, number = (topic.topic, topic.partition) if topic else (None, None)
        follower, partitions = follow_facts(connection, name, number)
        found = _leases(follower, partitions)
        if end is not None:
            found = [each for each in found if each[1].id == end]
            if not found:
                raise InvalidRequest("no such lease", id=end)
            for partition, lease in found if execute else ():
                take_back(connection, follower, partition, (key_of(lease),))
            context.output.note("ended:" if execute else "nothing was done: --execute ends it")
        elif execute:
            raise InvalidRequest("--execute ends a lease: name it by --end ID")
        _show(context, follower, found, connection.clock.now_ms(), end is not None and execute)


def _leases(follower: Follower, partitions: list[TopicIdPartition]) -> list[tuple[TopicIdPartition, ReaderLease]]:
    return [(each, lease) for each in partitions for lease in follower.partition(each).leases]


def _show(
    context: Context, follower: Follower, leases: list[tuple[TopicIdPartition, ReaderLease]], now: int, ended: bool
) -> None:
    rows, documents = [], []
    for partition, lease in sorted(leases, key=lambda each: (each[0], each[1].expires_at)):
        left = (lease.expires_at - now) / 1000
        name = follower.partition(partition).topic or partition.topic_id
        until = moment(lease.expires_at)
        rows.append([name, partition.partition, lease.offsets, lease.holder, until, _span(left), lease.id])
        documents.append(
            {
                "topic": name,
                "topic_id": partition.topic_id,
                "partition": partition.partition,
                "offsets": asdict(lease.offsets),
                "holder": lease.holder,
                "expires_at": lease.expires_at,
                "expires_in_s": round(left),
                "id": lease.id,
                "executed": ended,
            }
        )
    columns = ("topic", "partition", "offsets", "holder", "expires_at", "expires_in", "id")
    context.output.table(columns, rows, documents)


def _span(seconds: float) -> str:
    if seconds <= 0:
        return "expired"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes}m" if hours else f"{minutes}m {rest}s"
