"""The custodian in memory: the facts that it declares, ends, deletes and erases, and everything that must stop it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.leader.custody_world import DAY_MS, GRACE_MS, Ward
from tests.leader.world import World
from tierstate.state.epochs import TERMINAL_EPOCH, LeaderEpoch, Lineage
from tierstate.state.facts import (
    ContradictionSettled,
    LeaderElected,
    LogStartAdvanced,
    PartitionDeleted,
    PartitionMissing,
    ReaderLease,
    SegmentCopyFinished,
    SegmentCopyStarted,
)
from tierstate.state.ids import BrokerId, TopicIdPartition
from tierstate.state.offsets import Offset, OffsetRange, TimestampMs
from tierstate.state.segment import SegmentState
from tierstate.storage.memory import MemoryStore

NewWorld = Callable[..., World]


@pytest.fixture
def ward(world: World) -> Ward:
    """Every rolled segment is copied, and the topic is deleted."""
    world.process().copy_all()
    world.broker.delete_topic(world.name)
    return Ward(world)


def test_a_partition_whose_topic_is_gone_ends_after_the_grace_with_all_it_had(ward: Ward) -> None:
    assert len(ward.objects()) == 3 * len(ward.world.rolled)
    ward.work()
    view = ward.view()
    assert [fact.cluster_id for fact in view.missing] == ["memory"]
    assert view.term is not None
    assert view.term.epoch < TERMINAL_EPOCH
    assert len(view.readable) == len(ward.world.rolled)
    ward.wait(GRACE_MS - 1000)
    ward.work()
    assert ward.view() == view
    ward.wait(1000)
    ward.work_on()
    assert ward.objects() == set()
    assert {type(live.fact) for live in ward.facts()} == {LeaderElected, PartitionDeleted}
    assert {fact.epoch for fact in ward.values(LeaderElected)} == {TERMINAL_EPOCH}


def test_the_facts_that_end_a_partition_stay_and_cost_no_question(ward: Ward) -> None:
    ward.end()
    assert [type(live.fact) for live in ward.facts()] == [LeaderElected, PartitionDeleted]
    count = len(ward.log())
    ward.recorded_cluster = "another"  # asking the cluster would show it
    ward.wait(400 * DAY_MS)
    ward.work()
    assert len(ward.log()) == count
    assert ward.custodian.reasons == {}


def test_a_topic_made_again_under_the_same_name_shares_nothing_with_the_old_one(ward: Ward) -> None:
    world = ward.world
    new = TopicIdPartition(world.broker.create_topic(world.name), 0)
    ward.say(LeaderElected(new, world.name, LeaderEpoch(0), ward.id(), BrokerId(1), "", Lineage(), Offset(0), ward.now))
    kept = ward.facts(new)
    ward.end()
    assert {type(live.fact) for live in ward.facts()} == {LeaderElected, PartitionDeleted}
    assert ward.facts(new) == kept


def test_a_topic_that_answers_again_takes_its_partition_back(ward: Ward) -> None:
    ward.work()
    before = ward.view()
    ward.world.broker.restore_topic(ward.world.name, ward.world.topic_id)
    ward.work()
    after = ward.view()
    assert (after.missing, after.readable) == ((), before.readable)
    ward.wait(GRACE_MS)
    ward.work()
    assert ward.view() == after
    assert len(ward.objects()) == 3 * len(ward.world.rolled)


def test_an_undelete_in_time_restarts_the_grace(ward: Ward) -> None:
    ward.work()
    ward.wait(GRACE_MS)
    for live in ward.facts():
        if isinstance(live.fact, PartitionMissing):
            ward.erase(live.key)
    ward.work()
    assert [fact.at for fact in ward.view().missing] == [ward.now]
    ward.wait(GRACE_MS - 1000)
    ward.work()
    assert len(ward.view().readable) == len(ward.world.rolled)


def test_a_terminal_term_taken_too_late_is_taken_back(ward: Ward) -> None:
    ward.work()
    ward.wait(GRACE_MS)
    steps = ward.run_to("append partition-deleted")
    assert ward.view().term is not None
    ward.world.broker.restore_topic(ward.world.name, ward.world.topic_id)
    list(steps)
    view = ward.view()
    assert view.term is not None
    assert view.term.epoch < TERMINAL_EPOCH
    ward.wait(1000)
    ward.work()
    assert ward.view().missing == ()


def test_a_terminal_term_that_a_dead_process_left_is_taken_back_when_the_topic_answers(ward: Ward) -> None:
    ward.work()
    ward.wait(GRACE_MS)
    ward.run_to("append partition-deleted")
    ward.world.broker.restore_topic(ward.world.name, ward.world.topic_id)
    ward.process()
    ward.work()
    view = ward.view()
    assert view.term is not None
    assert (view.term.epoch < TERMINAL_EPOCH, view.missing) == (True, ())
    process = ward.world.process()
    assert process.begin().term.epoch == view.term.epoch


def test_an_ended_partition_whose_topic_answers_again_loses_nothing_more(ward: Ward) -> None:
    ward.work()
    ward.wait(GRACE_MS)
    ward.run_to("append delete-started")
    ward.world.broker.restore_topic(ward.world.name, ward.world.topic_id)
    objects = ward.objects()
    ward.process()
    ward.work()
    assert ward.objects() == objects
    assert "answers again" in next(iter(ward.custodian.reasons.values()))


def test_a_partition_that_only_recover_wrote_is_never_missing(new_world: NewWorld) -> None:
    world = new_world()
    world.broker.delete_topic(world.name)
    ward = Ward(world)
    epoch = LeaderEpoch(3)
    ward.say(LeaderElected(world.partition, "t", epoch, ward.id(), BrokerId(-1), "", Lineage(), Offset(0), ward.now))
    ward.work()
    assert ward.view().missing == ()
    assert "never saw the topic alive" in ward.custodian.reasons[world.partition]


def test_only_tier_state_partitions_that_this_broker_leads_are_looked_after(ward: Ward) -> None:
    ward.led.clear()
    ward.work()
    assert ward.view().missing == ()
    ward.led.add(0)
    ward.work()
    assert len(ward.view().missing) == 1


def test_a_lease_from_before_the_delete_keeps_the_objects_it_covers_until_it_is_over(ward: Ward) -> None:
    ward.work()
    ward.wait(GRACE_MS)
    until = TimestampMs(ward.now + DAY_MS)
    first = ward.view().readable[0]
    ward.say(ReaderLease(ward.world.partition, ward.id(), OffsetRange(Offset(0), Offset(0)), "spark", until))
    ward.work_on()
    assert {key.rsplit(".", 1)[0] for key in ward.objects()} == {first.object_key}
    assert "spark" in next(iter(ward.custodian.reasons.values()))
    ward.wait(2 * DAY_MS)
    ward.work_on()
    assert ward.objects() == set()
    assert len(ward.facts()) == 2


def test_objects_that_cannot_be_deleted_are_tried_again_later(ward: Ward) -> None:
    ward.work()
    ward.wait(GRACE_MS)
    ward.store_is_away(True)
    ward.work_on()
    assert len(ward.objects()) == 3 * len(ward.world.rolled)
    assert SegmentState.DELETE_SEGMENT_FINISHED not in ward.world.states()
    ward.store_is_away(False)
    ward.wait(600_000)
    ward.work_on()
    assert ward.objects() == set()


def test_facts_that_are_not_archived_yet_are_not_erased(ward: Ward) -> None:
    ward.archived = 0
    ward.process()
    ward.work()
    ward.wait(GRACE_MS)
    ward.work_on()
    assert ward.objects() != set(), "nobody would know afterwards that they were to go"
    assert any(isinstance(live.fact, SegmentCopyFinished) for live in ward.facts())
    assert ward.custodian.reasons[ward.world.partition] == "not archived yet"
    ward.archived = None
    ward.wait(1000)
    ward.work_on()
    assert len(ward.facts()) == 2


def test_a_fact_of_a_zombie_that_lands_after_the_end_is_fenced_and_cleared_up(ward: Ward) -> None:
    late = [live.fact for live in ward.facts() if isinstance(live.fact, SegmentCopyStarted | SegmentCopyFinished)][:2]
    start = next(live.fact for live in ward.facts() if isinstance(live.fact, LogStartAdvanced))
    ward.end()
    for fact in (*late, start):
        ward.say(fact)
    assert ward.view().readable == ()
    assert ward.world.states() == [SegmentState.ABANDONED]
    ward.work_on()
    assert {type(live.fact) for live in ward.facts()} == {LeaderElected, PartitionDeleted}
    assert {fact.epoch for fact in ward.values(LeaderElected)} == {TERMINAL_EPOCH}


def test_a_late_partition_deleted_of_a_withdrawn_term_means_nothing(ward: Ward) -> None:
    ward.work()
    ward.wait(GRACE_MS)
    ward.run_to("append partition-deleted")
    term = ward.view().term
    assert term is not None
    ward.world.broker.restore_topic(ward.world.name, ward.world.topic_id)
    ward.process()
    ward.work()
    ward.say(PartitionDeleted(ward.world.partition, term, ward.now))
    ward.world.broker.delete_topic(ward.world.name)
    objects = ward.objects()
    ward.work()
    assert len(ward.view().missing) == 1
    ward.wait(GRACE_MS - 1000)
    ward.work()
    assert ward.objects() == objects


def test_two_custodians_at_once_harm_nothing_and_the_one_that_stays_finishes(ward: Ward) -> None:
    other = Ward(ward.world)
    for each in (ward, other) * 2:
        each.step()
    ward.wait(GRACE_MS)
    for _ in range(20):
        for each in (ward, other):
            each.step()
            each.step()
            each.wait(60_000)
    other.led.clear()
    other.step()
    for _ in range(3):
        ward.wait(600_000)
        ward.work()
    assert ward.objects() == set()
    assert {type(live.fact) for live in ward.facts()} == {LeaderElected, PartitionDeleted}
    assert {fact.epoch for fact in ward.values(LeaderElected)} == {TERMINAL_EPOCH}


@pytest.mark.parametrize("step", ["append delete-started", "delete objects", "append tombstone"])
def test_a_higher_terminal_term_stops_the_lower_one_before_its_next_step(ward: Ward, step: str) -> None:
    ward.work()
    ward.wait(GRACE_MS)
    steps = ward.run_to(step, passing=60_000)
    Ward(ward.world).run_to("append partition-deleted")
    log_read, objects = ward.log(), ward.objects()
    list(steps)
    assert (ward.log(), ward.objects()) == (log_read, objects)
    assert "no longer rules" in ward.custodian.reasons[ward.world.partition]


def test_objects_that_survive_their_delete_are_not_reported_as_deleted(ward: Ward) -> None:
    class Forgetful(MemoryStore):
        """A store that reports objects as deleted, and keeps them."""

        def delete(self, key: str) -> None:
            return

        def delete_many(self, keys: Iterable[str]) -> None:
            return

    ward.store = Forgetful()
    for info in ward.world.store.list():
        ward.store.put_if_absent(info.key, ward.world.store.get(info.key))
    ward.process()
    ward.work()
    ward.wait(GRACE_MS)
    ward.work_on()
    assert set(ward.world.states()) == {SegmentState.DELETE_SEGMENT_STARTED}
    assert "still there" in ward.custodian.reasons[ward.world.partition]


def test_a_segment_that_a_person_keeps_outlives_its_topic(ward: Ward) -> None:
    started = next(live for live in ward.facts() if isinstance(live.fact, SegmentCopyStarted))
    ward.erase(started.key)
    (contradiction,) = ward.view().contradictions
    ward.say(ContradictionSettled(ward.world.partition, ward.id(), contradiction, True, "ops", ward.now))
    ward.work()
    ward.wait(GRACE_MS)
    ward.work_on()
    assert isinstance(started.fact, SegmentCopyStarted)
    assert {key.rsplit(".", 1)[0] for key in ward.objects()} == {started.fact.attempt.object_key}
    assert "a person keeps" in ward.custodian.reasons[ward.world.partition]


def test_the_rule_says_why_for_a_topic_that_is_there(world: World) -> None:
    world.process().copy_all()
    ward = Ward(world)
    ward.work()
    assert ward.custodian.reasons == {}
    assert ward.custody.next(world.partition) == "its topic exists"
