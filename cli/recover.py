"""``tierstate recover``: rebuild the tier-state topic from the bucket alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ..rules.recovery import PartitionPlan
from ..runtime.units import counted
from ..state.errors import CorruptData, Difference, InvalidRequest
from ..state.facts import OperatorOrder, OrderKind
from ..state.ids import TopicId, TopicIdPartition
from ..state.offsets import OffsetRange
from .begin_history import begin
from .context import Context
from .flags import acts, declare
from .parameter_types import TopicArgument, topic_type

if TYPE_CHECKING:
    from ..app.operating.recovery import Recovery
    from ..leader.recover_scan import Bucket
    from .output import Output


@declare("recover --store s3://bucket/prefix")
@acts(unasked=False)
@click.argument("partitions", nargs=-1, type=topic_type(), metavar="[TOPIC[:PARTITION]]...")
@click.option("--resume", is_flag=True, help="Go on with a recovery that was interrupted.")
@click.option(
    "--from-archive/--without-archive",
    "from_archive",
    default=None,
    help="Demand the archive, or do without; by default it binds where there is one.",
)
@click.option("--agents-are-stopped", is_flag=True, help="Demanded where no archive tells where agents answer.")
@click.option("--topic-id", "topic_ids", multiple=True, metavar="ID", help="Lost tier-state topics, oldest first.")
@click.option("--cluster-id", metavar="ID", help="The cluster the segments are of, when it is not this one.")
@click.option("--history", type=click.IntRange(0), help="Of the archive; by default the newest.")
@click.option(
    "--begin-history", is_flag=True, help="Settle that the topic parted from its archive: the topic counts from now on."
)
def command(
    context: Context,
    partitions: tuple[TopicArgument, ...],
    execute: bool,
    resume: bool,
    from_archive: bool | None,
    agents_are_stopped: bool,
    topic_ids: tuple[str, ...],
    cluster_id: str | None,
    history: int | None,
    begin_history: bool,
) -> None:
    """Rebuild a lost tier-state topic from the bucket: print the plan, or write it into a fresh topic.

    With TOPIC:PARTITION, add to the topic that is there what it lost of these partitions (FACTS LOST).

    The archive binds where there is one; without it nothing below the largest log start of any manifest comes back.
    Stop every agent first, unless this cluster has none of these topics. With --begin-history nothing is rebuilt: an
    older backup was put back, and what the topic has counts from now on, not what was archived of the history it lost.
    Exit code 4 when offsets are missing or a manifest is damaged, 1 when segments are left out.
    """
    from ..app.operating.recovery import (
        RecoveryRequest,
        plan_lost_facts,
        plan_recovery,
        write_lost_facts,
        write_recovery,
    )

    if begin_history:
        if resume or topic_ids or cluster_id or from_archive is not None or history is not None:
            raise InvalidRequest("--begin-history goes with --execute alone")
        begin(context, execute)
        return
    if partitions:
        if resume or topic_ids or cluster_id or from_archive is not None or history is not None:
            raise InvalidRequest("of named partitions the topic that is there counts: --execute goes with them alone")
        with context.alone("recover", execute) as (connection, lock):
            recovery = plan_lost_facts(connection, [(each.topic, each.partition) for each in partitions])
            if lock is not None and recovery.added:
                write_lost_facts(connection, recovery, lock)
        _show(context.output, recovery, execute)
        _judge(recovery)
        return
    with context.alone("recover", execute) as (connection, lock):
        chosen = tuple(TopicId(each) for each in topic_ids)
        recovery = plan_recovery(connection, RecoveryRequest(chosen, cluster_id, from_archive, history))
        if lock is not None:
            if recovery.archived_to is None and not agents_are_stopped and not recovery.all_gone:
                raise InvalidRequest(
                    "without an archive nothing tells where agents answer: stop every agent, and say so by "
                    "--agents-are-stopped"
                )
            if write_recovery(connection, recovery, lock, resume=resume):
                context.output.note("already recovered: everything stands in the topic, nothing was written")
    _show(context.output, recovery, execute)
    _judge(recovery)


def _judge(recovery: Recovery) -> None:
    if recovery.corrupt or recovery.gaps:
        raise CorruptData("not everything is there", damaged_or_missing=recovery.corrupt, gaps=recovery.gaps)
    if recovery.left_out:
        raise Difference("segments are left out", segments=recovery.left_out)


def plan_document(recovery: Recovery, executed: bool) -> dict[str, Any]:
    return {
        "cluster_id": recovery.cluster_id,
        "executed": executed,
        "tier_state_topic_ids": sorted({each.tier_state_topic_id for each in recovery.bucket.ours}),
        "archived_to": recovery.archived_to,
        "partitions": [_partition(recovery, plan) for plan in recovery.plans],
        "foreign": [{"object_key": each.key, "why": each.why} for each in recovery.bucket.foreign],
        "damaged": [{"object_key": each.key, "problem": each.problem} for each in recovery.bucket.damaged],
        "uncommitted": [{"object_key": each.base_key, "bytes": each.bytes} for each in recovery.bucket.uncommitted],
    }


def _partition(recovery: Recovery, plan: PartitionPlan) -> dict[str, Any]:
    return {
        "topic": plan.topic,
        "partition": plan.partition.partition,
        "topic_id": plan.partition.topic_id,
        "known_to_cluster": plan.partition.topic_id in recovery.names,
        "leader_epoch": plan.epoch,
        "lineage": [[entry.epoch, entry.start_offset] for entry in plan.lineage.entries],
        "log_start_offset": plan.log_start,
        "log_start_offset_from": plan.log_start_from,
        "restored": [
            {"segment_id": each.segment.segment_id, "offsets": asdict(each.segment.offsets)} for each in plan.restored
        ],
        "not_restored": [
            {
                "segment_id": each.segment.segment_id,
                "offsets": asdict(each.segment.offsets),
                "object_key": each.segment.object_key,
                "verdict": each.verdict.value,
                "why": each.why,
            }
            for each in plan.left_out
        ],
        "missing": [{"segment_id": each.segment_id, "offsets": asdict(each.offsets)} for each in plan.missing],
        "gaps": [asdict(gap) for gap in plan.gaps],
        "unproven": [asdict(each) for each in plan.unproven],
        "standing": [type(each).__name__ for each in plan.standing],
        "paused": is_paused(plan),
        "refused": plan.refused,
    }


def _show(output: Output, recovery: Recovery, executed: bool) -> None:
    if output.as_json:
        output.document(plan_document(recovery, executed))
        return
    line = output.line
    archive = "no archive: nothing proves what was deleted; log starts are those of the manifests"
    if recovery.archived_to is not None:
        ends = ", ".join(f"{name} to {end}" for name, end in recovery.archived_to.items())
        archive = f"the archive binds (tier-state partition {ends}); what came later is not in it"
    line(f"cluster {recovery.cluster_id}: {archive}")
    for plan in recovery.plans:
        show_partition(output, recovery, plan)
    list_texts(output, "DAMAGED", [f"{each.key}: {each.problem}" for each in recovery.bucket.damaged])
    list_texts(output, "foreign", [f"{each.key}: {each.why}" for each in recovery.bucket.foreign])
    list_texts(
        output,
        "uncommitted",
        [f"{each.base_key} ({counted(each.bytes, 'byte')})" for each in recovery.bucket.uncommitted],
    )
    facts = "written" if executed else "to be written; --execute does it"
    line(f"{recovery.writing:,} of {counted(len(recovery.plans), 'partition')} {facts}")


def show_partition(output: Output, recovery: Recovery, plan: PartitionPlan) -> None:
    topic_id, number = plan.partition.topic_id, plan.partition.partition
    output.line(f"{plan.partition.named(plan.topic)}  (topic id {topic_id})")
    if plan.refused:
        output.line(f"  REFUSED  {plan.refused}")
        return
    if topic_id not in recovery.names:
        output.line(f"  this cluster has no such topic; read it by its id: tierstate consume {topic_id}:{number}")
    records = sum(max(0, each.segment.record_count) for each in plan.restored)
    size = sum(each.segment.object_bytes for each in plan.restored)
    restored = f"{counted(len(plan.restored), 'segment')}, {counted(records, 'record')}, {counted(size, 'byte')}"
    output.line(f"  restored   {restored}, epoch {plan.epoch}")
    if plan.log_start is not None:
        output.line(f"  log start  {plan.log_start} (from the {plan.log_start_from})")
    for standing in plan.standing:
        output.line(f"  stands     {type(standing).__name__} {standing.id}")
    if is_paused(plan):
        output.line(
            f"  PAUSED     it is neither copied nor trimmed, as the archive has it; if it was resumed after that: "
            f"tierstate resume {plan.topic}:{number}"
        )
    key = _without_manifest(recovery.bucket, plan.partition)
    restore = f"; restore the manifest of {key} first, and recover again" if key else ""
    list_texts(output, "  GAP", [f"offsets {gap} belong to no tier{restore}" for gap in plan.gaps])
    name = f"{plan.topic}:{plan.partition.partition}"
    way_out = restore or f"; to give them up: tierstate delete-records {name} --before {{}} --execute"
    list_texts(
        output,
        "  unproven ",
        [
            f"offsets {each} belong to no tier: deleted after all that is recorded, or lost"
            + ("" if _has(plan, each) else way_out.format(each.end + 1))
            for each in plan.unproven
        ],
    )
    list_texts(
        output, "  MISSING", [f"{each.offsets} {each.segment_id}: archived as readable" for each in plan.missing]
    )
    for left in plan.left_out:
        output.line(f"  {left.verdict:<9}  {left.segment.offsets} {left.segment.segment_id}: {left.why}")


def is_paused(plan: PartitionPlan) -> bool:
    """Return whether a restored order pauses the partition. A later resume order may be lost."""
    orders = [each for each in plan.standing if isinstance(each, OperatorOrder)]
    superseding = [each for each in orders if each.kind is not OrderKind.DELETE_RECORDS]
    return bool(superseding) and max(superseding, key=lambda each: each.at).kind is OrderKind.PAUSE


def _without_manifest(bucket: Bucket, partition: TopicIdPartition) -> str | None:
    """Return the key of an object whose manifest is damaged or missing, and that may have the lost records, or None."""
    keys = [*(each.key for each in bucket.damaged), *(each.base_key for each in bucket.uncommitted)]
    return next((key for key in keys if f"-{partition.topic_id}/{partition.partition}/" in key), None)


def _has(plan: PartitionPlan, offsets: OffsetRange) -> bool:
    """Return whether a segment that is in the bucket, but is not restored, has some of these offsets."""
    return any(left.segment.offsets.overlap(offsets) for left in plan.left_out)


def list_texts(output: Output, label: str, texts: Sequence[str]) -> None:
    for text in texts:
        output.line(f"{label}  {text}")
