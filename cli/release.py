"""``tierstate release``."""

from __future__ import annotations

from dataclasses import asdict

import click

from ..state.errors import InvalidRequest
from ..state.ids import writer_of
from ..state.keys import key_of
from ..state.offsets import moment
from .context import Context
from .flags import declare
from .parameter_types import TopicArgument


@declare("release orders:0 KzQeK0bVSB6RjzJm1yCqDw --execute", topic="T:P", execute=False)
@click.argument("hold", metavar="[HOLD_ID]", required=False)
def command(context: Context, topic: TopicArgument, hold: str | None, execute: bool) -> None:
    """Show the integrity holds of a partition, or release one, after a person has looked at both facts it quotes.

    While a hold stands nothing of the partition is trimmed, expired, swept or erased. Facts that contradict each other
    are settled with `tierstate settle`. A topic that is gone is named by its topic id.
    """
    from ..app.opening.partitions import follow_facts
    from ..app.operating.orders import take_back

    with context.connected() as connection:
        follower, partitions = follow_facts(connection, topic.topic, topic.partition)
        standing = [each for partition in partitions for each in follower.partition(partition).holds]
        chosen = [each for each in standing if hold in (None, each.id)]
        if hold is not None and not chosen:
            raise InvalidRequest("no such hold", **topic.facts, hold=hold)
        if execute and hold is None:
            raise InvalidRequest("name the hold to be released", **topic.facts, holds=len(standing))
        if context.as_json:
            documents = [
                {**asdict(each), "topic_id": each.partition.topic_id, "partition": each.partition.partition}
                for each in chosen
            ]
            context.output.document([{**each, "executed": execute} for each in documents])
        for each in chosen if not context.as_json else ():
            context.output.line(f"{each.id}  since {moment(each.at)}, seen by {writer_of(each.broker_id)}")
            context.output.line(f"  {each.reason}")
            context.output.line(f"  first   {each.first or '-'}")
            context.output.line(f"  second  {each.second or '-'}")
        if not execute:
            context.output.note("nothing was done: --execute with a hold's id releases it" if chosen else "no holds")
            return
        for each in chosen:
            take_back(connection, follower, each.partition, (key_of(each),))
        context.output.note("released")
