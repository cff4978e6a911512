"""What `recover` would do, or did: for people, and as one document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..leader.recover_scan import Bucket
    from ..rules.recovery import PartitionPlan
    from ..state.ids import TopicId
    from .output import Output


@dataclass(frozen=True, slots=True)
class Recovery:
    """``names``: topics the cluster knows, by id. ``addresses``: where agents of archived terms answered; ``hosts``: of
    the brokers, beside which agents run.

    ``archived_to``: the position after the last archived one, by "topic id/tier-state partition"; None: no archive.
    """

    cluster_id: str
    bucket: Bucket
    plans: tuple[PartitionPlan, ...]
    names: Mapping[TopicId, str]
    archived_to: Mapping[str, int] | None
    addresses: frozenset[str]
    hosts: tuple[str, ...] = ()

    @property
    def all_gone(self) -> bool:
        """The cluster has none of these topics, so the agents that run here lead none of their partitions."""
        return bool(self.plans) and not any(plan.partition.topic_id in self.names for plan in self.plans)

    @property
    def writing(self) -> int:
        return sum(plan.writes for plan in self.plans)

    @property
    def corrupt(self) -> int:
        """Damaged manifests, missing segments, and partitions refused although they should be there."""
        refused = sum(plan.refused is not None and not plan.ended for plan in self.plans)
        return len(self.bucket.damaged) + refused + sum(len(plan.missing) for plan in self.plans)

    @property
    def gaps(self) -> int:
        return sum(len(plan.gaps) for plan in self.plans)

    @property
    def left_out(self) -> int:
        """Lost and unproven segments: whole in the bucket, and no longer named by any fact. And unproven offsets."""
        from ..rules.recovery import Verdict

        segments = sum(len(plan.of(Verdict.LOST)) + len(plan.of(Verdict.UNPROVEN)) for plan in self.plans)
        return segments + sum(len(plan.unproven) for plan in self.plans)


def document(recovery: Recovery, executed: bool) -> dict[str, Any]:
    """The one JSON document of the command."""
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
        "refused": plan.refused,
    }


def show(output: Output, recovery: Recovery, executed: bool) -> None:
    """The plan, a line a thing."""
    if output.as_json:
        output.document(document(recovery, executed))
        return
    line = output.line
    archive = "no archive: nothing proves what was deleted; log starts are those of the manifests"
    if recovery.archived_to is not None:
        ends = ", ".join(f"{name} to {end}" for name, end in recovery.archived_to.items())
        archive = f"the archive binds (tier-state partition {ends}); what came later is not in it"
    line(f"cluster {recovery.cluster_id}: {archive}")
    for plan in recovery.plans:
        _show_partition(output, recovery, plan)
    _list(output, "DAMAGED", [f"{each.key}: {each.problem}" for each in recovery.bucket.damaged])
    _list(output, "foreign", [f"{each.key}: {each.why}" for each in recovery.bucket.foreign])
    _list(output, "uncommitted", [f"{each.base_key} ({each.bytes} bytes)" for each in recovery.bucket.uncommitted])
    facts = "written" if executed else "to be written; --execute does it"
    line(f"{recovery.writing} of {len(recovery.plans)} partitions {facts}")


def _show_partition(output: Output, recovery: Recovery, plan: PartitionPlan) -> None:
    topic_id, number = plan.partition.topic_id, plan.partition.partition
    output.line(f"{plan.partition.named(plan.topic)}  (topic id {topic_id})")
    if plan.refused:
        output.line(f"  REFUSED  {plan.refused}")
        return
    if topic_id not in recovery.names:
        output.line(f"  this cluster has no such topic; read it by its id: tierstate consume {topic_id}:{number}")
    records = sum(each.segment.record_count for each in plan.restored)
    size = sum(each.segment.object_bytes for each in plan.restored)
    output.line(f"  restored   {len(plan.restored)} segments, {records:,} records, {size:,} bytes, epoch {plan.epoch}")
    if plan.log_start is not None:
        output.line(f"  log start  {plan.log_start} (from the {plan.log_start_from})")
    for standing in plan.standing:
        output.line(f"  stands     {type(standing).__name__} {standing.id}")
    _list(output, "  GAP", [f"offsets {gap} belong to no tier" for gap in plan.gaps])
    name = f"{plan.topic}:{plan.partition.partition}"
    _list(
        output,
        "  unproven ",
        [
            f"offsets {each} belong to no tier: deleted after all that is recorded, or lost; to give them up: "
            f"tierstate delete-records {name} --before {each.end + 1} --execute"
            for each in plan.unproven
        ],
    )
    _list(output, "  MISSING", [f"{each.offsets} {each.segment_id}: archived as readable" for each in plan.missing])
    for left in plan.left_out:
        output.line(f"  {left.verdict:<9}  {left.segment.offsets} {left.segment.segment_id}: {left.why}")


def _list(output: Output, label: str, texts: Sequence[str]) -> None:
    for text in texts:
        output.line(f"{label}  {text}")
