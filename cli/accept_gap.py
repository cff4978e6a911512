"""``tierstate accept-gap``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ..runtime.id_source import RandomIds
from ..runtime.units import counted
from ..state.errors import InvalidRequest
from ..state.keys import key_of
from ..state.offsets import Offset, OffsetRange
from .context import Context
from .flags import declare
from .parameter_types import TopicArgument

if TYPE_CHECKING:
    from ..app.operating.gap_acceptance import Gaps


NO_GAP = "no gap; an object that is missing is none: tierstate verify names it"


@declare(
    "accept-gap orders:0",
    'accept-gap orders:0 --from 41 --to 44 --reason "deleted on the broker" --execute',
    topic="T:P",
    execute=False,
)
@click.option("--from", "first", type=click.IntRange(min=0), metavar="N", help="The first offset that is gone.")
@click.option("--to", "last", type=click.IntRange(min=0), metavar="N", help="The last offset that is gone.")
@click.option("--reason", metavar="TEXT", help="Why the records are gone. It is kept in the fact.")
@click.option("--withdraw", is_flag=True, help="Take back what was accepted: readers fail at the gap again.")
def command(
    context: Context,
    topic: TopicArgument,
    first: int | None,
    last: int | None,
    reason: str | None,
    withdraw: bool,
    execute: bool,
) -> None:
    """Show the offsets of a partition that neither tier has, and accept that their records are lost.

    Once accepted, readers and consumers go on behind the gap instead of failing at it. Records that a tier has are
    always read, also when they come back later. Refused while anything of the range may still be brought back.
    """
    from ..app.opening.partitions import partitions_of
    from ..app.operating.gap_acceptance import acceptance, gaps_now, require_gone
    from ..app.operating.orders import give, take_back

    if (first is None) is not (last is None):
        raise InvalidRequest("name both ends of the gap: --from and --to")
    offsets = None if first is None or last is None else OffsetRange(Offset(first), Offset(last))
    if execute and offsets is None:
        raise InvalidRequest("name the gap: --from and --to")
    if offsets is not None and not withdraw and not reason:
        raise InvalidRequest("say why the records are gone: --reason TEXT")
    note = context.output.note
    with context.connected() as connection:
        broker = connection.broker.control
        (partition,) = partitions_of(broker, topic.topic, topic.partition)
        follower = connection.view([partition])
        gaps = gaps_now(broker, follower, topic.topic, partition)
        _show(context, topic, gaps, offsets, execute)
        if offsets is None:
            note("nothing was done: --from, --to, --reason and --execute accept a gap" if gaps.open else NO_GAP)
            return
        if withdraw:
            keys = [key_of(fact) for fact in gaps.view.accepted_gaps if fact.offsets == offsets]
            if not keys:
                raise InvalidRequest("no such gap was accepted", **topic.facts, offsets=offsets)
            if execute:
                take_back(connection, follower, partition, keys)
        else:
            require_gone(gaps, offsets, connection.store, connection.names)
            if execute:
                fact = acceptance(gaps.view, offsets, str(reason), connection.clock, RandomIds())
                give(connection.topic, follower, fact)
        done = "withdrawn" if withdraw else "accepted"
        note(done if execute else f"nothing was done: with --execute it is {done}")


def _show(context: Context, topic: TopicArgument, gaps: Gaps, offsets: OffsetRange | None, execute: bool) -> None:
    from ..app.looking.partition_facts import accepted_in_words

    if context.as_json:
        accepted = [{**asdict(fact), "partition": fact.partition.partition} for fact in gaps.view.accepted_gaps]
        context.output.document(
            {
                "topic": topic.topic,
                "partition": gaps.view.partition.partition,
                "gaps": [asdict(gap) for gap in gaps.open],
                "accepted": accepted,
                "offsets": None if offsets is None else asdict(offsets),
                "executed": execute,
            }
        )
        return
    for gap in gaps.open:
        context.output.line(f"GAP  {gap}: {counted(len(gap), 'offset')} that neither tier has")
    for text in accepted_in_words(gaps.view):
        context.output.line(f"ACCEPTED GAP  {text}")
