"""The tier-state topic from the bucket alone: it means what the lost one meant, whatever stopped the recovery."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.leader.recovery import (
    Target,
    block_of,
    bucket,
    of_cluster,
    of_topic,
    overwrite,
    plan,
    rewrite,
    same_meaning,
)
from tests.leader.world import FaultyTopic, World
from tests.operations import run_until
from tierstate.leader.copier import copy_segment
from tierstate.rules.trim import cut_elsewhere
from tierstate.state.errors import InvalidRequest
from tierstate.state.facts import (
    LeaderElected,
)
from tierstate.state.ids import RECOVERER, TopicId, TopicIdPartition
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.offsets import Offset, TimestampMs
from tierstate.storage.segment.manifest import SegmentManifest, metadata_of
from tierstate.storage.segment.writer import delete_segment

OTHER_TOPIC = TopicId("CCCCCCCCCCCCCCCCCCCCCg")
NewWorld = Callable[..., World]
CASES = ["none", "zstd", "transactions", "epochs", "big", "appendtime", "recompressed"]


@pytest.mark.parametrize("case", CASES)
def test_a_recovered_partition_means_what_the_lost_one_meant(case: str, new_world: NewWorld) -> None:
    world = new_world(case)
    world.roll()
    world.process().copy_all()
    recovery_plan = plan(world)
    recovered = Target.fresh(world).recover([recovery_plan])
    assert same_meaning(recovered, world.view())
    assert not recovery_plan.gaps
    assert recovered.leader is not None
    assert recovered.term is not None
    assert recovered.leader.broker_id == RECOVERER
    assert recovered.lineage.entries[-1].epoch == world.view().readable[-1].leader_epochs.last_epoch
    assert recovered.coverage.owned == tuple(
        replace(piece, segment=replace(piece.segment, term=recovered.term)) for piece in world.view().coverage.owned
    )


def test_terms_are_new_and_learnt_from_the_view(world: World) -> None:
    world.process().copy_all()
    target = Target.fresh(world)
    target.topic.append(0, "meta/topic", b"")  # so that no position is what it was
    recovered = target.recover([plan(world)])
    assert {segment.term.position for segment in recovered.readable} == {1}
    assert {segment.term for segment in recovered.readable} == {recovered.term}
    assert not recovered.fenced


def test_a_dead_attempt_that_was_copied_again_does_not_come_back(world: World) -> None:
    process = world.process()
    session = process.begin()
    process.copy_next(session)
    run_until(
        copy_segment(session, process.candidate(session), process.tools), 4
    )  # its manifest is there, its finish is not
    world.process().work()
    recovery_plan = plan(world)
    (lost,) = recovery_plan.left_out
    assert (lost.verdict, lost.segment.offsets.start) == ("lost", world.rolled[1])
    assert same_meaning(Target.fresh(world).recover([recovery_plan]), world.view())


def test_an_agent_goes_on_with_a_recovered_topic(world: World) -> None:
    process = world.process()
    session = process.begin()
    for _ in range(2):
        process.copy_next(session)
    copied = {segment.segment_id for segment in world.view().readable}
    recovery_plan = plan(world)
    world.topic = FaultyTopic(world.clock)
    Target(world, world.topic).recover([recovery_plan])
    world.elect_here()
    world.process().work()
    view = world.check_promises()
    assert copied < {segment.segment_id for segment in view.readable}
    assert not view.lineage_unknown
    assert view.coverage.prefix_end(0) == world.bases[-1] - 1
    assert world.local_start() == world.bases[-1]


@pytest.mark.parametrize("told", [True, False], ids=["broker-told", "broker-silent"])
def test_no_advice_of_ours_deletes_what_a_recovery_just_restored(told: bool, world: World) -> None:
    world.process().work()
    start = world.local_start()
    assert start > 0
    recovery_plan = plan(world, local_start=start if told else None)
    world.topic = FaultyTopic(world.clock)
    recovered = Target(world, world.topic).recover([recovery_plan])
    assert cut_elsewhere(recovered, world.name, Offset(start)) is None
    world.elect_here()
    world.roll()
    process = world.process()
    process.work(process.worker(delay_ms=10**9))  # it copies, and trims nothing by itself
    view = world.view()
    assert RECOVERER not in {live.fact.broker_id for live in view.others if isinstance(live.fact, LeaderElected)}
    assert cut_elsewhere(view, world.name, Offset(start)) is None
    assert cut_elsewhere(view, world.name, Offset(world.end())) is not None, "what others cut is still told"


def test_a_recovery_goes_on_although_the_log_start_moves_during_it(world: World) -> None:
    world.process().work()
    target = Target.fresh(world)
    at_first = plan(world, local_start=world.local_start())
    target.process([at_first], lambda act: run_until(act, 5))
    view = target.recover([plan(world, local_start=world.local_start() + 1)], resume=True)
    assert view.trim_intended == at_first.local_start


# --- what is not whole --------------------------------------------------------------------------------------------


def test_a_manifest_that_is_gone_is_a_gap_with_its_offsets(world: World) -> None:
    process = world.process()
    process.copy_all()
    lost = world.view().readable[2]
    world.store.delete(object_key(lost.object_key, ObjectKind.MANIFEST))
    recovery_plan = plan(world)
    assert recovery_plan.gaps == (lost.offsets,)
    assert [each.base_key for each in bucket(world).uncommitted] == [lost.object_key]
    recovered = Target.fresh(world).recover([recovery_plan])
    assert lost.segment_id not in recovered.segments
    assert len(recovered.readable) == len(world.rolled) - 1


def test_the_newest_manifest_is_missed_when_a_broker_tells_where_its_log_begins(world: World) -> None:
    world.process().work()
    newest = world.view().readable[-1]
    delete_segment(world.store, newest)
    assert not plan(world).gaps
    assert plan(world, local_start=world.local_start()).gaps == (newest.offsets,)


@pytest.mark.parametrize("suffix", [".log", ".indexes"])
def test_a_segment_whose_objects_are_not_whole_is_named_and_not_restored(suffix: str, world: World) -> None:
    world.process().copy_all()
    broken = world.view().readable[1]
    key = f"{broken.object_key}{suffix}"
    overwrite(world, key, world.store.get(key)[:-1])
    (damaged,) = bucket(world).damaged
    assert suffix in damaged.problem
    assert plan(world).gaps == (broken.offsets,)
    world.store.delete(key)
    assert "missing" in bucket(world).damaged[0].problem


def test_a_manifest_of_garbage_is_named_and_skipped(world: World) -> None:
    world.process().copy_all()
    broken = world.view().readable[1]
    key = object_key(broken.object_key, ObjectKind.MANIFEST)
    whole = world.store.get(key)
    descriptor = whole.replace(b'"record_count":', b'"record_c0unt":')
    contradicting = whole.replace(b'"brokerId":1', b'"brokerId":2')
    assert contradicting != whole
    for data in (whole[:-7], b"", b"[]", descriptor, contradicting):
        overwrite(world, key, data)
        assert [each.key for each in bucket(world).damaged] == [key]
        assert plan(world).gaps == (broken.offsets,)


def test_a_manifest_that_stands_under_another_name_is_not_taken_twice(world: World) -> None:
    world.process().copy_all()
    segment = world.view().readable[0]
    for kind in ObjectKind:
        data = world.store.get(object_key(segment.object_key, kind))
        world.store.put_if_absent("backup/" + object_key(segment.object_key, kind), data)
    assert "another object" in bucket(world).damaged[0].problem
    assert same_meaning(Target.fresh(world).recover([plan(world)]), world.view())


def test_a_manifest_that_describes_another_partition_under_this_name_is_not_believed(world: World) -> None:
    world.process().copy_all()
    segment = world.view().readable[0]
    theirs = TopicIdPartition(OTHER_TOPIC, 0)

    def of_theirs(manifest: SegmentManifest) -> SegmentManifest:
        block = block_of(manifest)
        return replace(
            manifest,
            metadata=replace(metadata_of(block.segment, TimestampMs(0)), partition=theirs),
            tierstate=replace(block, segment=replace(block.segment, partition=theirs)),
        )

    rewrite(world, segment, of_theirs)
    [damaged] = bucket(world).damaged
    assert f"it describes another segment, {segment.segment_id} of {theirs}" in damaged.problem
    assert plan(world).unproven == (segment.offsets,)


def test_foreign_objects_are_listed_and_not_restored(world: World) -> None:
    world.process().copy_all()
    aiven, other, elsewhere, *kept = world.view().readable
    rewrite(world, aiven, lambda manifest: replace(manifest, tierstate=None))
    rewrite(world, other, of_topic(OTHER_TOPIC))
    rewrite(world, elsewhere, of_cluster("another-cluster"))
    with pytest.raises(InvalidRequest, match="by --topic-id, oldest first") as refused:
        bucket(world)
    assert OTHER_TOPIC in str(refused.value)
    bucket_scan = bucket(world, TopicId(world.topic.topic_id))
    assert len(bucket_scan.foreign) == 3
    assert [each.segment for each in bucket_scan.ours] == kept
    both = bucket(world, TopicId(world.topic.topic_id), OTHER_TOPIC)
    assert len(both.ours) == len(kept) + 1


@pytest.mark.parametrize("later_ms", [-1, 1])
def test_tier_state_topics_that_were_lost_one_after_the_other_are_named_in_that_order(
    world: World, later_ms: int
) -> None:
    world.process().copy_all()
    own, newest = world.topic.topic_id, world.view().readable[-1]

    def of_other(manifest: SegmentManifest) -> SegmentManifest:
        copied_at = TimestampMs(newest.copied_at + later_ms)
        block = replace(block_of(manifest), tier_state_topic_id=OTHER_TOPIC)
        return replace(manifest, tierstate=replace(block, segment=replace(block.segment, copied_at=copied_at)))

    rewrite(world, world.view().readable[0], of_other)
    with pytest.raises(InvalidRequest) as refused:
        bucket(world)
    ids = [own, OTHER_TOPIC] if later_ms > 0 else [OTHER_TOPIC, own]
    assert f"ids={', '.join(ids)}" in str(refused.value)
