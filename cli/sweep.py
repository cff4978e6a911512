"""``tierstate sweep``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TextIO

import click

from ..state.errors import Difference
from .context import Context
from .flags import acts, declare
from .parameter_types import TopicArgument

if TYPE_CHECKING:
    from ..app.operating.sweeping import Row, SweepByHand


@declare("sweep orders --execute", topic="[T[:P]]")
@acts(unasked=False)
@click.option("--orphan", "orphans", multiple=True, metavar="KEY", help="Delete this too, though no fact names it.")
@click.option("--orphans-from", type=click.File(), metavar="FILE", help="And what is listed here, one key a line.")
def command(
    context: Context, topic: TopicArgument | None, execute: bool, orphans: tuple[str, ...], orphans_from: TextIO | None
) -> None:
    """Show the objects of a partition, a topic or all topics that no segment needs, and delete what may go.

    condemned: a fact says that its segment was deleted; it goes with --execute. upload: never ended, and its attempt
    did; likewise. orphan, unknown: no fact names it. It may be of another cluster, of Kafka's own plugin or of a lost
    history, and goes only when its key is given; refused where it may be the only copy of records. abandoned: agents
    sweep those by themselves.
    Agents do all this too, but for orphans: after sweep.grace. Exit code 1 when something stays that no agent needs.
    """
    from ..app.opening.partitions import find_topic_id, to_follow
    from ..app.operating.prefix import changing
    from ..app.operating.sweeping import SweepByHand

    with context.connected("kafka.bootstrap.servers", "store.url") as connection:
        topic_id = find_topic_id(connection.broker.control, topic.topic) if topic else None
        number = topic.partition if topic else None
        follower = connection.view(to_follow(topic_id, number))
        sweep = SweepByHand(connection, follower, frozenset(_keys(orphans, orphans_from)))
        partitions = sweep.partitions(topic_id, number)
        with context.output.progress("listing objects", len(partitions)) as advance:
            for partition in partitions:
                sweep.look(partition)
                advance(1)
        sweep.check(execute=execute)
        swept: set[str] = set()
        try:
            if execute:
                count = sum(row.sweep for row in sweep.rows)
                with changing(connection) as store, context.output.progress("sweeping", count) as advance:
                    for key in sweep.delete(store):
                        swept.add(key)
                        advance(1)
        finally:
            _show(context, sweep, swept, execute)
    if sweep.unseen:
        raise next(iter(sweep.unseen.values()))
    _judge(sweep.rows, swept)


def _keys(orphans: Iterable[str], lines: Iterable[str] | None) -> Iterator[str]:
    yield from orphans
    yield from (line.strip() for line in lines or () if line.strip())


def _show(context: Context, sweep: SweepByHand, swept: set[str], execute: bool) -> None:
    from ..app.operating.sweeping import totals

    out, rows = context.output, sweep.rows
    for name, error in sweep.unseen.items():
        out.note(f"not listed: {name}: {error}")
    for unseen in {each.uploads_unseen for each in sweep.looks if each.uploads_unseen}:
        out.note(f"uploads that never ended are not shown: {unseen}")
    if out.as_json:
        documents = [row.as_json(row.key in swept) for row in rows]
        out.document({"executed": execute, "found": documents, "totals": totals(rows)})
        return
    done = "swept" if execute else "would go"
    shown = [
        (
            row.view.partition.named(row.topic),
            row.kind,
            row.bytes,
            ((row.key in swept if execute else row.sweep) and done) or "stays",
            row.key,
            row.why,
        )
        for row in rows
    ]
    if shown:
        out.table(("partition", "what", "bytes", "outcome", "object", "why"), shown)
    out.line(", ".join(f"{each['count']:,} {kind} ({each['bytes']:,} bytes)" for kind, each in totals(rows).items()))
    if not execute:
        out.note("nothing was done: --execute does it")


def _judge(rows: list[Row], swept: set[str]) -> None:
    left = [row for row in rows if row.item is not None and row.key not in swept]
    if left:
        raise Difference("objects are left that no segment needs", objects=len(left))
