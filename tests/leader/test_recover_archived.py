"""A recovery obeys the archive of the tier-state topic: what was deleted or held stays so."""

from __future__ import annotations

import pytest

from tests.leader.recovery import Target, history, plan, same_meaning
from tests.leader.world import FaultyTopic, World
from tests.twins.counting_ids import CountingIds
from tierstate.follower.heartbeat import sign
from tierstate.leader.recover_scan import continued
from tierstate.rules.recovery import Verdict
from tierstate.schemas.codec import encode_fact
from tierstate.state.errors import CorruptData
from tierstate.state.facts import (
    DeleteReason,
    IntegrityHold,
    LogStartAdvanced,
    SegmentDeleteFinished,
    SegmentDeleteStarted,
)
from tierstate.state.ids import BrokerId, FactId
from tierstate.state.keys import key_of
from tierstate.state.offsets import Offset
from tierstate.state.segment import SegmentState
from tierstate.storage.segment.writer import delete_segment


def advance(world: World, to: int) -> None:
    """Let retention move the log start, and the next copy's manifest carry it."""
    process = world.process()
    session = process.begin()
    session.append(
        LogStartAdvanced(world.partition, Offset(to), session.term, session.counter(), "test", world.clock.now_ms())
    )


def test_without_an_archive_nothing_below_the_largest_log_start_comes_back(world: World) -> None:
    process = world.process()
    session = process.begin()
    for _ in range(3):
        process.copy_next(session)
    start = Offset(world.rolled[2])
    session.append(
        LogStartAdvanced(world.partition, start, session.term, session.counter(), "test", world.clock.now_ms())
    )
    process.copy_next(session)
    recovery_plan = plan(world)
    assert (recovery_plan.log_start, recovery_plan.log_start_from) == (start, "manifests")
    assert [each.segment.offsets.start for each in recovery_plan.of(Verdict.UNPROVEN)] == world.rolled[:2]
    recovered = Target.fresh(world).recover([recovery_plan])
    assert [segment.offsets.start for segment in recovered.readable] == world.rolled[2:4]
    assert recovered.log_start == start
    # the archive shows that they had not been deleted yet
    proven = plan(world, history(world))
    assert not proven.left_out
    assert same_meaning(Target.fresh(world).recover([proven]), world.view())


def test_a_log_start_that_only_the_archive_knows_binds(world: World) -> None:
    world.process().copy_all()
    advance(world, world.rolled[3])
    assert plan(world).log_start == 0
    recovery_plan = plan(world, history(world))
    assert (recovery_plan.log_start, recovery_plan.log_start_from) == (world.rolled[3], "archive")
    assert same_meaning(Target.fresh(world).recover([recovery_plan]), world.view())


@pytest.mark.parametrize("step", ["started", "finished", "erased"])
def test_a_segment_deleted_by_the_archive_stays_deleted(step: str, world: World) -> None:
    process = world.process()
    session = process.copy_all()
    segment = world.view().readable[0]
    started = SegmentDeleteStarted(segment, session.term, session.counter(), DeleteReason.RETENTION_TIME, session.now())
    session.append(started)
    if step != "started":
        session.append(SegmentDeleteFinished(segment, session.term, session.counter(), session.now()))
    if step == "erased":
        for live in world.view().segments[segment.segment_id].facts:
            session.erase(live.key)
        assert segment.segment_id not in world.view().segments
    recovery_plan = plan(world, history(world))
    recovered = Target.fresh(world).recover([recovery_plan])
    assert [each.segment for each in recovery_plan.of(Verdict.DELETED)] == [segment]
    meaning = recovered.segments[segment.segment_id]
    assert meaning.state is SegmentState.DELETE_SEGMENT_STARTED
    assert meaning.deleting is not None
    assert isinstance(meaning.deleting.fact, SegmentDeleteStarted)
    assert meaning.deleting.fact.reason is DeleteReason.RETENTION_TIME
    assert same_meaning(recovered, world.view())
    # and without the archive it would
    assert segment in [each.segment for each in plan(world).restored]


def test_a_tombstone_of_a_copy_says_deleted_although_its_delete_was_compacted_away_before_it_was_archived(
    world: World,
) -> None:
    session = world.process().copy_all()
    segment = world.view().readable[0]
    session.erase(f"{world.partition.topic_id}/0/segment/{segment.segment_id}/copy-finished")
    recovery_plan = plan(world, history(world))
    assert [each.segment for each in recovery_plan.of(Verdict.DELETED)] == [segment]


def test_a_hold_binds_until_a_person_erased_it(world: World) -> None:
    world.process().copy_all()
    now = world.clock.now_ms()
    hold = IntegrityHold(world.partition, FactId.of(bytes(15) + b"h"), BrokerId(1), "seen", "a", "b", now)
    world.topic.append(0, key_of(hold), encode_fact(hold))
    recovered = Target.fresh(world).recover([plan(world, history(world))])
    assert recovered.holds == (hold,)
    world.topic.append(0, key_of(hold), None)
    assert not plan(world, history(world)).standing


def test_a_fact_of_a_later_version_in_the_archive_refuses_the_partition(world: World) -> None:
    world.process().copy_all()
    world.topic.append(0, f"{world.partition.topic_id}/0/segment/{FactId.of(bytes(16))}/copy-started", b"later")
    recovery_plan = plan(world, history(world))
    assert recovery_plan.refused is not None
    assert not recovery_plan.writes


def test_a_key_of_unknown_form_in_the_archive_is_refused(world: World) -> None:
    world.process().copy_all()
    world.topic.append(0, f"{world.partition.topic_id}/0/novelty/x", b"later")
    with pytest.raises(CorruptData, match="unknown form"):
        history(world)


def test_signatures_of_processes_in_the_archive_name_no_partition(world: World) -> None:
    world.process().copy_all()
    before = history(world)
    sign(world.topic, FactId.of(CountingIds(7).uuid()))
    assert history(world) == before


def test_a_segment_that_only_the_archive_has_is_missing(world: World) -> None:
    world.process().copy_all()
    newest = world.view().readable[-1]
    delete_segment(world.store, newest)
    recovery_plan = plan(world, history(world))
    assert (recovery_plan.missing, recovery_plan.gaps) == ((newest,), (newest.offsets,))


def test_the_archived_facts_after_a_recovery_continue_those_before_it(world: World) -> None:
    session = world.process().copy_all()
    first, second, *_ = world.view().readable
    session.append(SegmentDeleteStarted(first, session.term, session.counter(), DeleteReason.LOG_START, session.now()))
    before = history(world)
    lost = world.topic
    world.topic = FaultyTopic(world.clock)
    Target(world, world.topic).recover([plan(world, before)])
    session = world.process().begin()
    session.append(SegmentDeleteStarted(second, session.term, session.counter(), DeleteReason.LOG_START, session.now()))
    both = continued(before, history(world))
    assert lost is not world.topic
    assert {each.segment.segment_id for each in plan(world, both).of(Verdict.DELETED)} == {
        first.segment_id,
        second.segment_id,
    }
    assert plan(world, both).restored == plan(world, history(world)).restored


def test_a_delete_of_an_older_archive_binds_after_a_recovery_without_it(world: World) -> None:
    session = world.process().copy_all()
    first = world.view().readable[0]
    session.append(SegmentDeleteStarted(first, session.term, session.counter(), DeleteReason.LOG_START, session.now()))
    before = history(world)
    world.topic = FaultyTopic(world.clock)
    Target(world, world.topic).recover([plan(world)])
    both = continued(before, history(world))
    assert [each.segment.segment_id for each in plan(world, both).of(Verdict.DELETED)] == [first.segment_id]
