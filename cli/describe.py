"""``tierstate describe``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ..runtime.clock import SystemClock
from ..runtime.units import counted
from ..state.errors import CorruptData
from ..state.ids import TopicIdPartition
from ..state.view import TierView
from .context import Context
from .flags import declare, view_source
from .parameter_types import TopicArgument
from .reading import gateway_client

if TYPE_CHECKING:
    from ..app.looking.partition_facts import PartitionFacts
    from ..app.opening.bucket_connection import BucketConnection
    from ..app.opening.connection import Connection
    from ..app.opening.kip405_connection import Kip405Connection
    from ..follower.follower import Follower

WATCH_S = 2.0
SHOWN_OF_A_KIND = 20
"""Largest number of lines of one kind (gaps, contradictions and others) that are shown to people."""


@declare("describe user_events:0 --watch", topic="T[:P]")
@click.option("--watch", is_flag=True, help="Again every two seconds, until interrupted.")
@view_source()
def command(context: Context, topic: TopicArgument, watch: bool) -> None:
    """Both tiers of a topic or partition: bounds, gaps, why not copied, why not trimmed.

    Some rows come from the partition's agent. An agent that does not answer is shown as silent, never as healthy.
    Exit code 4 for GAP and FACTS LOST, and when its daily look at the store missed objects of readable segments.
    """
    bootstrap = context.settings.kafka.get("bootstrap.servers", "HOST:PORT")
    if context.gateway is not None:
        from ..app.looking.partition_facts import facts_by_gateway

        with closing(gateway_client(context)) as client:
            _watch(context, lambda: list(facts_by_gateway(client, topic.topic, topic.partition, bootstrap)), watch)
        return
    from ..app.opening.connection import Connection
    from ..app.opening.partitions import partitions_of

    if watch:
        context.refuse_bucket("--watch")
    with context.reading() as connection:
        partitions = partitions_of(connection.control, topic.topic, topic.partition)
        if isinstance(connection, Connection):
            follower = connection.view(partitions)
            _watch(context, lambda: _with_agents(context, connection, follower, partitions, topic.topic), watch)
        else:
            view = connection.view(partitions)
            _watch(context, lambda: _without_agents(connection, view, partitions, topic.topic), watch)


def _watch(context: Context, look: Callable[[], list[PartitionFacts]], watch: bool) -> None:
    while True:
        facts = look()
        _show(context, facts)
        if not watch:
            _judge(facts)
            return
        SystemClock().sleep(WATCH_S)
        context.output.line()


def _with_agents(
    context: Context, connection: Connection, follower: Follower, partitions: Sequence[TopicIdPartition], topic: str
) -> list[PartitionFacts]:
    from ..app.looking.lost_state import why_lost
    from ..app.looking.overview import agent_addresses
    from ..app.looking.partition_facts import look_at, never_led, why_untiered
    from ..app.opening.partitions import both_tiers_now

    broker, settings = connection.control, context.settings
    bootstrap = settings.kafka.get("bootstrap.servers", "HOST:PORT")
    untiered = why_untiered(broker, settings, topic)
    leaders = {each.partition: each.leader for each in broker.topic(topic).partitions}
    facts = []
    for partition in partitions:
        bounds, view = both_tiers_now(broker, follower, topic, partition)
        lost = why_lost(connection, follower, topic, view, bounds)
        leader = leaders.get(view.partition.partition)
        facts.append(look_at(view, bounds, topic, untiered, bootstrap, lost, leader))
    if untiered is None and settings.tiering.covers(topic):
        agents = agent_addresses(connection) if any(each.agent is None for each in facts) else {}
        for number, partition_facts in enumerate(facts):
            if partition_facts.agent is None:
                leader = leaders.get(partition_facts.partition)
                address = None if leader is None else agents.get(leader)
                agent = never_led(topic, partition_facts.partition, leader, address)
                facts[number] = replace(partition_facts, agent=agent)
    return facts


def _without_agents(
    connection: BucketConnection | Kip405Connection, view: TierView, partitions: Sequence[TopicIdPartition], topic: str
) -> list[PartitionFacts]:
    from ..app.looking.partition_facts import look_at, look_at_past
    from ..app.opening.bucket_connection import BucketConnection

    facts = []
    for each in partitions:
        if isinstance(connection, BucketConnection):
            facts.append(look_at_past(view.partition(each), topic))
        else:
            bounds = connection.bounds(topic, each.partition)
            view.require_fresh(view.tier_partition(each), 0.0)
            looked = look_at(view.partition(each), bounds, topic)
            facts.append(replace(looked, agent="none: Kafka tiers this topic itself", unconfirmed=None))
    return facts


def _show(context: Context, facts: list[PartitionFacts]) -> None:
    if context.as_json:
        context.output.document([each.as_json() for each in facts])
    else:
        for partition_facts in facts:
            print_facts(context, partition_facts)


def _judge(facts: list[PartitionFacts]) -> None:
    wrong = {
        "objects of readable segments are missing: tierstate verify names them": sum(map(missing_objects, facts)),
        "facts are lost": sum(each.lost is not None for each in facts),
        "offsets are in no tier": sum(len(each.gaps) for each in facts),
    }
    problems = [f"{what} ({count})" for what, count in wrong.items() if count]
    if problems:
        raise CorruptData("; ".join(problems))


def missing_objects(facts: PartitionFacts) -> int:
    """Return the number of missing objects that the partition's agent reports, or 0 if no agent answered."""
    return int(facts.agent.get("missing_objects") or 0) if isinstance(facts.agent, dict) else 0


def print_facts(context: Context, facts: PartitionFacts) -> None:
    from ..app.looking.partition_facts import NOT_ASKED

    line = context.output.line
    line(f"{facts.topic}-{facts.partition}  (topic id {facts.topic_id}, term {facts.term or 'none'})")
    local = NOT_ASKED if facts.agent == NOT_ASKED else "unknown: the broker did not answer"
    if facts.local_log_start_offset is not None:
        stable = f"last stable offset {facts.last_stable_offset}"
        local = f"{facts.local_log_start_offset}..{facts.high_watermark} ({stable})"
    line(f"  local tier    {local}")
    remote = "nothing"
    if facts.highest_remote_offset is not None:
        remote = (
            f"{facts.log_start_offset}..{facts.highest_remote_offset} in {counted(facts.remote_segments, 'segment')}, "
            f"{'' if facts.remote_records is None else counted(facts.remote_records, 'record') + ', '}"
            f"{counted(facts.remote_bytes, 'byte')}"
        )
    line(f"  remote tier   {remote}")
    for what, texts in (
        ("ORDER", facts.orders),
        ("GAP", facts.gaps),
        ("ACCEPTED GAP", facts.accepted_gaps),
        ("DEGRADED", facts.degraded),
        ("HELD", facts.holds),
        ("CONTRADICTION", facts.contradictions),
        ("KEPT", facts.kept),
    ):
        for text in texts[:SHOWN_OF_A_KIND]:
            line(f"  {what}  {text}")
        if len(texts) > SHOWN_OF_A_KIND:
            line(f"  {what}  {len(texts) - SHOWN_OF_A_KIND:,} more, which --json lists")
    if facts.lost is not None:
        line(f"  FACTS LOST  {facts.lost}")
    if missing_objects(facts):
        missing = counted(missing_objects(facts), "object")
        line(f"  MISSING  {missing} of readable segments, at the agent's last look at the store")
    if facts.cut_elsewhere is not None:
        line(f"  CUT ELSEWHERE  {facts.cut_elsewhere}")
    if facts.lineage_unknown:
        line(
            "  LINEAGE UNKNOWN  remote segments exist that the current lineage cannot place: "
            f"tierstate settle {facts.topic}:{facts.partition}"
        )
    if facts.unconfirmed is not None:
        line(f"  UNCONFIRMED   {facts.unconfirmed}")
    if facts.lost_branch is not None:
        line(f"  LOST BRANCH   {facts.lost_branch}")
    if facts.untiered is not None:
        line(f"  not tiered    {facts.untiered}")
    if facts.agent is None:
        line("  agent         none has led this partition yet")
    elif isinstance(facts.agent, str):
        line(f"  agent         {facts.agent}")
    else:
        for label, key in (
            ("refused", "refused"),
            ("not copied", "not_copied"),
            ("not trimmed", "not_trimmed"),
            ("trim.proof", "trim_proof"),
            ("not expired", "not_expired"),
            ("not erased", "not_erased"),
            ("last error", "last_error"),
            ("STORE AWAY", "store_away"),
            ("WRONG FOLDERS", "copied_folders"),
        ):
            if facts.agent.get(key):
                line(f"  {label:<13} {facts.agent[key]}")
        for right in facts.agent.get("rights_lacking") or ():
            line(f"  RIGHT LACKS   {right}")
        named = facts.agent.get("held_by") or facts.agent.get("not_trimmed_reason") == "groups-unknown"
        if named and facts.agent.get("groups_age_s") is not None:
            line(f"  groups        as asked {facts.agent['groups_age_s']:.0f} s ago; every trim asks again")
    if facts.end_transaction is not None:
        line(f"  does it hang? {facts.end_transaction.find_hanging}")
        line(f"  if it does    {facts.end_transaction.abort}")
