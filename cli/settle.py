"""``tierstate settle``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from ..rules.lineages import Unknown, unknown_of
from ..runtime.clock import SystemClock
from ..runtime.id_source import RandomIds
from ..runtime.units import counted
from ..state.epochs import Lineage
from ..state.errors import InvalidRequest, NotTiered
from ..state.facts import ContradictionSettled, LineageSettled
from ..state.ids import FactId
from ..state.partition_view import PartitionView
from .context import Context
from .flags import declare
from .parameter_types import TopicArgument

CONTINUES = (
    "--continues: the log goes on where that ends. Right unless an election was unclean, or a log folder was lost, "
    "while no agent ran. (After a restart of the only replica Kafka may log UNCLEAN: it lost nothing by that.) "
    "If it is wrong, readers get remote records below {start} that this log does not have."
)
ANEW = (
    "--anew: what is remote below {start} is of another log. It is read no more, and its objects stay until "
    "`tierstate delete-records {topic} --before {start}`. If it is wrong, readers miss records that are there."
)
KEEP = "--keep: the segment's objects are never deleted, whatever its facts say."
GO_ON = "--go-on: what its state says goes on: a segment that is not readable is swept or deleted in the end."


@declare("settle orders:0 --continues --execute", topic="T:P", execute=False)
@click.option("--continues", "lineage", flag_value="continues", help="The log goes on where the newest known one ends.")
@click.option("--anew", "lineage", flag_value="anew", help="What is remote below the broker's log is of another log.")
@click.option("--contradiction", metavar="N|TEXT", help="The contradiction to settle: its number here, or its text.")
@click.option("--keep/--go-on", "keep", default=None, help="What becomes of the segment's objects.")
def command(
    context: Context,
    topic: TopicArgument,
    lineage: str | None,
    contradiction: str | None,
    keep: bool | None,
    execute: bool,
) -> None:
    """Show what keeps a partition stuck until a person decides: an unknown lineage, facts that contradict each other.

    With a decision and --execute it is written as a fact. Agents obey within seconds, and it stays settled.
    """
    from ..app.opening.connection import view_now
    from ..app.opening.partitions import follow_facts
    from ..app.operating.orders import give

    if (contradiction is None) is not (keep is None):
        raise InvalidRequest("a contradiction is settled with --contradiction and --keep or --go-on")
    if lineage is not None and contradiction is not None:
        raise InvalidRequest("settle one thing at a time: the lineage, or a contradiction")
    with context.connected() as connection:
        follower, partitions = follow_facts(connection, topic.topic, topic.partition)
        if len(partitions) != 1:
            raise NotTiered(
                "no fact is about this partition" if not partitions else "name one partition", **topic.facts
            )
        view = view_now(follower, partitions[0])
        unknown = unknown_of(view)
        fact = None
        try:
            fact = _decided(view, unknown, lineage, contradiction, keep)
        finally:  # also if the decision is refused, because the output lists what can be settled
            _show(context, topic.typed, view, unknown, fact is not None and execute)
        if fact is None or not execute:
            stuck = unknown is not None or view.contradictions
            context.output.note("nothing was done: decide, and --execute" if stuck else "nothing is to be settled")
            return
        give(connection.topic, follower, fact)
        context.output.note("settled")


def _decided(
    view: PartitionView, unknown: Unknown | None, lineage: str | None, contradiction: str | None, keep: bool | None
) -> LineageSettled | ContradictionSettled | None:
    """Return the fact that records the decision, or None without a decision.

    Raises InvalidRequest if the lineage is known, or the contradiction does not exist.
    """
    from ..app.operating.orders import issuer

    new, now = FactId.of(RandomIds().uuid()), SystemClock().now_ms()
    if lineage is not None:
        if unknown is None:
            raise InvalidRequest(
                "the lineage is known: nothing is to be settled", topic=view.topic, partition=view.partition
            )
        believed = unknown.continues if lineage == "continues" else unknown.anew
        return LineageSettled(view.partition, new, believed, issuer(), now)
    if contradiction is None:
        return None
    standing = dict(enumerate(view.contradictions, 1))
    text = standing.get(int(contradiction)) if contradiction.isdecimal() else contradiction
    if text not in view.contradictions:
        raise InvalidRequest("no such contradiction", contradiction=contradiction, standing=len(standing))
    return ContradictionSettled(view.partition, new, str(text), bool(keep), issuer(), now)


def _show(context: Context, topic: str, view: PartitionView, unknown: Unknown | None, executed: bool) -> None:
    from ..state.ids import writer_of

    if context.as_json:
        context.output.document(_document(view, unknown, executed))
        return
    line = context.output.line
    if unknown is not None:
        epoch, start = unknown.begins
        line(f"LINEAGE UNKNOWN  the broker's log begins with epoch {epoch} at offset {start}")
        source = (
            f"term {unknown.leader.epoch} of {writer_of(unknown.leader.broker_id)}"
            if unknown.leader
            else "the segments"
        )
        line(f"  known         {_epochs(unknown.lineage.entries)} (epoch:offset), by {source}")
        line(f"  checkpoint    {_epochs(view.lineage.entries)}")
        below = [each for each in view.readable if each.offsets.start < start]
        line(f"  remote below  {below[0].offsets.start}..{below[-1].offsets.end} in {counted(len(below), 'segment')}")
        line(f"  {CONTINUES.format(start=start)}")
        line(f"    believed    {_epochs(unknown.continues.entries)}")
        line(f"  {ANEW.format(start=start, topic=topic)}")
        line(f"    believed    {_epochs(unknown.anew.entries)}")
    for number, text in enumerate(view.contradictions, 1):
        line(f"CONTRADICTION {number}  {text}")
        for quote in _quotes(view, text):
            line(f"  {quote}")
    if view.contradictions:
        line(f"  {KEEP}")
        line(f"  {GO_ON}")
    for fact in view.settled:
        line(f"settled by {fact.settled_by}, objects {'kept' if fact.keep else 'not kept'}: {fact.contradiction}")
    for fact_of_lineage in view.settled_lineages:
        line(f"settled by {fact_of_lineage.settled_by}: {_epochs(fact_of_lineage.lineage.entries)}")


def _document(view: PartitionView, unknown: Unknown | None, executed: bool) -> dict[str, Any]:
    lineages: dict[str, Lineage] = {}
    if unknown is not None:
        lineages = {"known": unknown.lineage, "continues": unknown.continues, "anew": unknown.anew}
    pairs = {name: [[e.epoch, e.start_offset] for e in each.entries] for name, each in lineages.items()}
    return {
        "topic": view.topic,
        "topic_id": view.partition.topic_id,
        "partition": view.partition.partition,
        "executed": executed,
        "unknown_lineage": pairs or None,
        "contradictions": [{"text": text, "facts": _quotes(view, text)} for text in view.contradictions],
        "settled": [{**asdict(fact), "partition": view.partition.partition} for fact in view.settled],
    }


def _epochs(entries: Any) -> str:
    return " ".join(f"{entry.epoch}:{entry.start_offset}" for entry in entries) or "nothing"


def _quotes(view: PartitionView, text: str) -> list[str]:
    """Return one text for the state of each segment with this contradiction, and for each fact that it names."""
    from ..leader.integrity import quoted

    segments = [segment for segment in view.segments.values() if segment.contradiction == text]
    named = [live for segment in segments for live in segment.facts if f"{live.key} at {live.position}" in text]
    return [f"state {segment.state}" for segment in segments] + [quoted(live.key, live.fact) for live in named]
