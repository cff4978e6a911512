"""A doubt about the evidence or the partition never leads to a fact or a lost object, whenever it comes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.leader.custody_world import GRACE_MS, Ward
from tests.leader.world import World
from tierstate.rules.custody import Evidence, ending
from tierstate.state.epochs import TERMINAL_EPOCH
from tierstate.state.facts import IntegrityHold, PartitionDeleted, SegmentCopyStarted
from tierstate.state.ids import BrokerId
from tierstate.state.partition_view import PartitionView


@pytest.fixture
def ward(world: World) -> Ward:
    """Every rolled segment is copied, and the topic is deleted."""
    world.process().copy_all()
    world.broker.delete_topic(world.name)
    return Ward(world)


def another_cluster(ward: Ward) -> None:
    ward.recorded_cluster = "another"


def no_recorded_cluster(ward: Ward) -> None:
    ward.recorded_cluster = ""


def hidden_name(ward: Ward) -> None:
    ward.world.broker.hide_topics(ward.world.name)


def hidden_others(ward: Ward) -> None:
    ward.world.broker.hide_topics(others=True)


def one_broker_knows_it(ward: Ward) -> None:
    ward.world.broker.remember_topic(2, ward.world.topic_id)


def one_broker_is_down(ward: Ward) -> None:
    ward.world.broker.stop_broker(2)


def drifted(ward: Ward) -> None:
    ward.world.topic.drift.append("cleanup.policy is delete, compact is wanted")
    ward.process()


def held(ward: Ward) -> None:
    hold = IntegrityHold(ward.world.partition, ward.id(), BrokerId(1), "why", "a", "b", ward.now)
    ward.say(hold)


def degraded(ward: Ward) -> None:
    key = f"{ward.world.partition.topic_id}/0/order/{ward.id()}"
    ward.world.topic.append(0, key, b"\xc3\x01nobody knows this")


def contradicted(ward: Ward) -> None:
    started = next(live for live in ward.facts() if isinstance(live.fact, SegmentCopyStarted))
    ward.erase(started.key)


DOUBTS = [
    another_cluster,
    no_recorded_cluster,
    hidden_name,
    hidden_others,
    one_broker_knows_it,
    one_broker_is_down,
    drifted,
    held,
    degraded,
    contradicted,
]


@pytest.mark.parametrize("doubt", DOUBTS)
def test_a_doubt_never_leads_to_a_fact(ward: Ward, doubt: Callable[[Ward], None]) -> None:
    doubt(ward)
    log_read, objects = ward.log(), ward.objects()
    ward.work()
    ward.wait(GRACE_MS)
    ward.work()
    assert ward.log() == log_read
    assert ward.objects() == objects
    assert ward.custodian.reasons


@pytest.mark.parametrize("doubt", DOUBTS)
def test_a_doubt_that_comes_during_the_grace_keeps_every_object(ward: Ward, doubt: Callable[[Ward], None]) -> None:
    ward.work()
    doubt(ward)
    ward.wait(GRACE_MS)
    objects = ward.objects()
    ward.work()
    assert ward.objects() == objects
    assert not [live for live in ward.facts() if isinstance(live.fact, PartitionDeleted)]


@pytest.mark.parametrize("doubt", DOUBTS)
@pytest.mark.parametrize("step", ["append leader-elected", "append partition-deleted", "delete objects"])
def test_a_doubt_that_comes_right_before_a_step_stops_it(ward: Ward, doubt: Callable[[Ward], None], step: str) -> None:
    ward.work()
    ward.wait(GRACE_MS)
    objects = ward.objects()
    steps = ward.run_to(step, passing=60_000)
    doubt(ward)
    list(steps)
    ward.work_on()
    assert ward.objects() == objects
    assert (ending(ward.view()) is None) == (step != "delete objects")
    terminal = [entry for entry in ward.log() if f"/leader/{TERMINAL_EPOCH}/" in entry.key]
    assert (terminal == []) == (step == "append leader-elected")


def remember_settings(ward: Ward) -> None:
    """Let the evidence have the settings of the tier-state topic from a minute ago."""
    topic, look = ward.world.topic, ward.look

    def remembered(view: PartitionView) -> Evidence:
        drift, topic.drift = topic.drift, []
        evidence = look(view)
        topic.drift = drift
        return evidence

    ward.look = remembered  # type: ignore[method-assign]
    ward.process()


def test_no_object_is_deleted_when_the_tier_state_topic_drifted_since_the_evidence(ward: Ward) -> None:
    remember_settings(ward)
    ward.work()
    ward.wait(GRACE_MS)
    objects = ward.objects()
    steps = ward.run_to("delete objects", passing=60_000)
    ward.world.topic.drift.append("cleanup.policy is delete, compact is wanted")
    ward.wait(1_000)
    list(steps)
    assert ward.objects() == objects


def test_no_fact_is_erased_when_the_tier_state_topic_drifted_since_the_evidence(ward: Ward) -> None:
    """A tombstone is safe only while the topic has its compaction lags."""
    topic = ward.world.topic
    remember_settings(ward)
    ward.work()
    ward.wait(GRACE_MS)
    steps = ward.run_to("append tombstone", passing=60_000)
    log = ward.log()
    topic.drift.append("cleanup.policy is delete, compact is wanted")
    ward.wait(1_000)
    list(steps)
    assert ward.log() == log
    assert "not safe any more" in ward.custodian.reasons[ward.world.partition]
    topic.drift.clear()
    ward.wait(60_000)
    ward.work_on()
    assert len(ward.facts()) == 2, "the leader and the end of the partition"
