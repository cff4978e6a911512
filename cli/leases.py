"""``tierstate leases``."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ..runtime.clock import SystemClock
from ..state.errors import InvalidRequest, UnknownTopic
from ..state.facts import ReaderLease
from ..state.ids import TopicIdPartition
from ..state.keys import key_of
from ..state.offsets import OffsetRange, moment
from .context import Context
from .flags import declare
from .parameter_types import TopicArgument
from .reading import gateway_client

if TYPE_CHECKING:
    from ..follower.follower import Follower

EXAMPLE = """\b
Example: tierstate leases orders:0
topic   partition  offsets  holder         expires_at            expires_in  id
orders  0          0..4711  spark job 993  2026-03-01T12:00:00Z  3h 12m      KzQeK0bVSB6RjzJm1yCqDw
"""


@declare(name="leases", epilog=EXAMPLE, topic="[T[:P]]", execute=False)
@click.option("--end", metavar="ID", help="End this lease: what it keeps may be deleted under its reader.")
def command(context: Context, topic: TopicArgument | None, end: str | None, execute: bool) -> None:
    """Readers' leases: who keeps which offsets of the remote tier, and until when.

    A lease keeps the objects of segments that are being read. It delays the deletion of objects, never the log start.
    A topic that is gone is named by its topic id.
    """
    if execute and end is None:
        raise InvalidRequest("--execute ends a lease: name it by --end ID")
    if context.gateway is not None:
        if end is not None:
            raise InvalidRequest("--end writes to the tier-state topic: it asks no gateway")
        _show(context, _of_gateway(context, topic), ended=False)
        return

    from ..app.opening.partitions import follow_facts
    from ..app.operating.orders import take_back

    with context.connected() as connection:
        name, number = (topic.topic, topic.partition) if topic else (None, None)
        follower, partitions = follow_facts(connection, name, number)
        leases = [(each, lease) for each in partitions for lease in follower.partition(each).leases]
        if end is not None:
            leases = [each for each in leases if each[1].id == end]
            if not leases:
                raise InvalidRequest("no such lease", id=end)
            for partition, lease in leases if execute else ():
                take_back(connection, follower, partition, (key_of(lease),))
            context.output.note("ended:" if execute else "nothing was done: --execute ends it")
        _show(context, [_said(follower, *each) for each in leases], ended=execute)


def _said(follower: Follower, partition: TopicIdPartition, lease: ReaderLease) -> dict[str, Any]:
    return {
        "topic": follower.partition(partition).topic or partition.topic_id,
        "topic_id": partition.topic_id,
        "partition": partition.partition,
        "offsets": asdict(lease.offsets),
        "holder": lease.holder,
        "expires_at": lease.expires_at,
        "id": lease.id,
    }


def _of_gateway(context: Context, topic: TopicArgument | None) -> list[dict[str, Any]]:
    """Return the gateway's leases of existing topics, in the form of `_said`. Raises UnknownTopic."""
    with closing(gateway_client(context)) as client:
        names = [topic.topic] if topic else client.topics()
        described = [each for name in names for each in client.describe(name)]
    numbers = {each["partition"] for each in described}
    if topic is not None and topic.partition is not None:
        if topic.partition not in numbers:
            raise UnknownTopic("no such partition", topic=topic.topic, partition=topic.partition)
        described = [each for each in described if each["partition"] == topic.partition]
    place = ("topic", "topic_id", "partition")
    return [{name: each[name] for name in place} | lease for each in described for lease in each["leases"]]


def _show(context: Context, leases: list[dict[str, Any]], *, ended: bool) -> None:
    now = SystemClock().now_ms()
    leases.sort(key=lambda each: (each["topic_id"], each["partition"], each["expires_at"]))
    rows, documents = [], []
    for lease in leases:
        left = (lease["expires_at"] - now) / 1000
        offsets, until = OffsetRange(**lease["offsets"]), moment(lease["expires_at"])
        rows.append([lease["topic"], lease["partition"], offsets, lease["holder"], until, _span(left), lease["id"]])
        documents.append(lease | {"expires_in_s": round(left), "executed": ended})
    columns = ("topic", "partition", "offsets", "holder", "expires_at", "expires_in", "id")
    context.output.table(columns, rows, documents)


def _span(seconds: float) -> str:
    if seconds <= 0:
        return "expired"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes}m" if hours else f"{minutes}m {rest}s"
