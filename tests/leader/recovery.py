"""A lost tier-state topic and its recovery: the bucket of a `World`, and a fresh topic to recover into."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tests.leader.world import World
from tests.twins.counting_ids import CountingIds
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.follower.digests import meaning_digest
from tierstate.follower.follower import Follower
from tierstate.follower.open import open_view
from tierstate.leader.recover import RecoverTools, check_target, recover_all
from tierstate.leader.recover_scan import Bucket, read_history, scan_bucket, sort_out
from tierstate.rules.recovery import ArchivedPartition, PartitionPlan, plan_partitions
from tierstate.runtime.operation import Operation, run
from tierstate.state.ids import TopicId, TopicIdPartition
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.offsets import Offset, Position
from tierstate.state.partition_view import PartitionView
from tierstate.state.segment import RemoteSegment
from tierstate.state.view import Entry
from tierstate.storage.segment.manifest import SegmentManifest, TierstateBlock
from tierstate.storage.segment.manifest_json import format_manifest, with_own_size
from tierstate.storage.segment.reader import read_manifest

FRESH_ID = "BBBBBBBBBBBBBBBBBBBBBg"


def bucket(world: World, *topic_ids: TopicId) -> Bucket:
    """Return the bucket as a scan of the world's store shows it."""
    return sort_out(scan_bucket(world.store), "memory", topic_ids)


def history(world: World) -> dict[TopicIdPartition, ArchivedPartition]:
    """Return what an archive of everything that was ever appended means."""
    return read_history(entries(world))


def entries(world: World) -> list[Entry]:
    return [entry for batch in world.topic.reader({0: Position(0)}).poll(0) for entry in batch.entries]


def plan(
    world: World,
    archive: dict[TopicIdPartition, ArchivedPartition] | None = None,
    local_start: int | None = None,
) -> PartitionPlan:
    """Return the plan for the world's only partition."""
    starts = {} if local_start is None else {world.partition: Offset(local_start)}
    (only,) = plan_partitions(bucket(world).ours, archive or {}, starts)
    return only


@dataclass
class Target:
    """A fresh tier-state topic, which outlives the processes that recover into it."""

    world: World
    topic: MemoryTierTopic

    @classmethod
    def fresh(cls, world: World) -> Target:
        return cls(world, MemoryTierTopic(1, FRESH_ID))

    def recover(self, plans: Iterable[PartitionPlan], *, resume: bool = False) -> PartitionView:
        """Recover everything in one process."""
        return self.process(list(plans), lambda act: run(act), resume=resume)

    def process(
        self,
        plans: list[PartitionPlan],
        live: Callable[[Operation[int]], object],
        *,
        resume: bool = False,
        seed: int = 77,
    ) -> PartitionView:
        """Recover in a process that ``live`` runs. Return the partition as a follower sees it that starts later."""
        follower = self.follower()
        try:
            tools = RecoverTools(self.topic, follower, self.world.clock, CountingIds(seed))
            check_target(self.topic, follower, plans, resume=resume)
            live(recover_all(plans, tools))
        finally:
            follower.close()
        return self.view()

    def follower(self) -> Follower:
        return open_view(self.topic, "memory", self.world.clock)

    def view(self) -> PartitionView:
        follower = self.follower()
        try:
            follower.require_fresh(0, 0)
            return follower.partition(self.world.partition)
        finally:
            follower.close()

    @property
    def keys(self) -> list[str]:
        return [entry.key for batch in self.topic.reader({0: Position(0)}).poll(0) for entry in batch.entries]


def same_meaning(recovered: PartitionView, lost: PartitionView) -> bool:
    """Return whether both mean the same, with the same descriptors byte for byte, except the term."""
    assert lost.readable
    assert recovered.term is not None
    expected = [replace(segment, term=recovered.term) for segment in lost.readable]
    return list(recovered.readable) == expected and meaning_digest(recovered) == meaning_digest(lost)


def rewrite(world: World, segment: RemoteSegment, change: Callable[[SegmentManifest], SegmentManifest]) -> None:
    """Replace the manifest of a segment by a changed one."""
    manifest = with_own_size(change(read_manifest(world.store, segment.object_key)))
    overwrite(world, object_key(segment.object_key, ObjectKind.MANIFEST), format_manifest(manifest))


def overwrite(world: World, key: str, data: bytes) -> None:
    world.store.delete(key)
    world.store.put_if_absent(key, data)


def of_topic(topic_id: TopicId) -> Callable[[SegmentManifest], SegmentManifest]:
    return lambda manifest: replace(manifest, tierstate=replace(block_of(manifest), tier_state_topic_id=topic_id))


def of_cluster(cluster_id: str) -> Callable[[SegmentManifest], SegmentManifest]:
    return lambda manifest: replace(manifest, tierstate=replace(block_of(manifest), cluster_id=cluster_id))


def block_of(manifest: SegmentManifest) -> TierstateBlock:
    assert manifest.tierstate is not None
    return manifest.tierstate
