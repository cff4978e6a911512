"""The reasons why something is not copied, trimmed, expired: doubts that a person must resolve, and failures."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from tests.broker.raw_batches import append_batch
from tests.leader.real import eventually
from tests.log.batches import Batch, record
from tests.scenarios.reasons_world import ACTS, Desk, NewReasonTopic, ReasonTopic, patch, shows
from tierstate.broker.tier_topic_setup import create_tier_topic
from tierstate.rules.reasons import Reason
from tierstate.runtime.clock import SystemClock
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.facts import IntegrityHold, LeaderElected, SegmentCopyFinished
from tierstate.state.ids import RemoteSegmentId
from tierstate.state.offsets import Offset

pytestmark = pytest.mark.kafka

# --- doubt -----------------------------------------------------------------------------------------------------------


@shows(Reason.DEGRADED)
def test_a_newer_version_wrote_a_fact(desk: Desk) -> None:
    desk.append(f"{desk.partition.topic_id}/0/log-start/0/0/9", b"\x00 from the future")
    for act in ACTS:
        desk.says(act, Reason.DEGRADED, r"degraded: .*log-start/0/0/9.*")


@shows(Reason.HELD)
def test_a_person_must_look_first(desk: Desk) -> None:
    reason = "two values of one key"
    desk.say(IntegrityHold(desk.partition, desk.fact_id(), desk.broker_id, reason, "a", "b", desk.now()))
    held = rf"held: {reason} \(1 hold, the first of \d{{4}}-\d\d-\d\dT[\d:]+Z\)"
    for act in ("trimmed", "expired"):
        desk.says(act, Reason.HELD, held)


@shows(Reason.CONTRADICTION)
def test_facts_contradict_each_other(topic: ReasonTopic) -> None:
    with topic.desk() as desk:
        session = desk.begin()
        desk.work()
        whole = topic.seen(desk.job).readable[0]
        session = desk.begin()
        another = replace(whole, segment_id=RemoteSegmentId.of(desk.job.leader.context.ids.uuid()), term=session.term)
        session.append(SegmentCopyFinished(another))
        for act in ("trimmed", "expired"):
            desk.says(act, Reason.CONTRADICTION, rf"contradiction: .*{another.segment_id}.*")


@shows(Reason.LINEAGE_UNKNOWN, Reason.FENCED)
def test_a_leader_knows_nothing_of_older_epochs_and_a_higher_term_is_in_force(topic: ReasonTopic, desk: Desk) -> None:
    active = topic.bases()[-1]
    elsewhere = LeaderElected(
        desk.partition,
        topic.name,
        LeaderEpoch(7),
        desk.fact_id(),
        desk.broker_id,
        "",
        Lineage.of((7, active)),
        Offset(0),
        desk.now(),
    )
    desk.say(elsewhere)
    topic.append(4_000)
    cannot = "lineage unknown: remote segments exist that the current lineage cannot place"
    desk.says("trimmed", Reason.LINEAGE_UNKNOWN, f"{cannot}: it begins with epoch 7 at offset {active}")
    desk.says("copied", Reason.FENCED, ".*")


@shows(Reason.TIER_STATE_UNSAFE)
def test_the_tier_state_topic_is_not_safe(topic: ReasonTopic) -> None:
    with topic.desk() as desk:
        topic.alter(topic.spec.name, cleanup_policy="delete")
        sentence = "the tier-state topic is not safe any more: .*cleanup.policy.*delete.*"
        for act in ("trimmed", "expired"):
            desk.says(act, Reason.TIER_STATE_UNSAFE, sentence)


@shows(Reason.TIER_STATE_LOST)
def test_no_fact_is_left_of_what_is_in_the_bucket(topic: ReasonTopic) -> None:
    with topic.desk() as desk:
        desk.work()
    name = topic.spec.name
    topic.admin.delete_topics([name], operation_timeout=30)[name].result(30)
    eventually(lambda: name not in topic.admin.list_topics(timeout=60).topics)
    create_tier_topic(topic.sandbox.client_config, topic.spec, SystemClock().now_ms())
    topic.append(1_700)
    with topic.desk() as desk:
        sentence = "no fact speaks of this partition, but the bucket has segments of it; .*tierstate recover .*"
        desk.says("copied", Reason.TIER_STATE_LOST, sentence)
        assert desk.job.view.facts(desk.partition) == []


@shows(Reason.OBJECTS_MISSING)
def test_an_object_of_a_readable_segment_is_removed(topic_for: NewReasonTopic) -> None:
    topic = topic_for({"sweep": {"grace": 1}})
    topic.roll()
    with topic.desk() as desk:
        desk.work()
        gone = next(topic.store_folder.rglob("*.indexes"))
        gone.unlink()
        sentence = rf"objects of readable segments are missing: \S+{gone.name} is gone"
        eventually(lambda: desk.work().missing_objects)
        desk.says("trimmed", Reason.OBJECTS_MISSING, sentence)


# --- failures --------------------------------------------------------------------------------------------------------


@shows(Reason.CORRUPT_DATA)
def test_a_segment_is_damaged_on_the_brokers_disk(topic: ReasonTopic) -> None:
    patch(topic.log(0), 200, b"damaged")
    with topic.desk() as desk:
        sentence = rf"batch CRC does not match\. file=\S+/{0:020d}\.log position=0 .*"
        desk.says("copied", Reason.CORRUPT_DATA, sentence)
        eventually(lambda: "(failed 2 times in a row)" in (desk.work().not_copied or ""))


@shows(Reason.UNDECODABLE)
def test_a_producer_sends_a_record_whose_offset_lies_above_its_batch(topic_for: NewReasonTopic) -> None:
    topic = topic_for({})
    lifted = [record(delta, b"k", b"v") for delta in (0, 1, 7)]
    assert append_batch(topic.sandbox, topic.name, Batch(0, lifted, time=SystemClock().now_ms()).bytes) == 0
    topic.roll()
    with topic.desk() as desk:
        sentence = rf"readers of the remote tier .* --before \d+\. batch=0 object_key=\S+/{0:020d}-\S+"
        desk.says("trimmed", Reason.UNDECODABLE, sentence)
        assert desk.work().not_copied_reason == Reason.ALL_COPIED


@shows(Reason.STORE_AWAY, Reason.LATE_WRITES)
def test_the_store_goes_away_in_the_middle_of_a_copy(topic: ReasonTopic) -> None:
    away = topic.store_folder.with_name("away")
    with topic.desk() as desk:
        while "put log" not in (taken := take_until(acting := desk.worker.steps(), "put log")):
            assert len(taken) < 10
        topic.store_folder.rename(away)
        assert not any(step == "put indexes" for step in acting)
        sentence = r".*store=\S+.*|.*failed \d+ times.*"
        desk.says("copied", Reason.STORE_AWAY, sentence)
        away.rename(topic.store_folder)
        late = r"1 condemned segment keeps its objects; segment \S+: the grace for late writes ends in \d+ m.*"
        desk.says("expired", Reason.LATE_WRITES, late)


def take_until(acting: Iterator[str], step: str) -> list[str]:
    """Return the steps taken; the operation stands right before the last of them, or is over."""
    taken = []
    for step_taken in acting:
        taken.append(step_taken)
        if step_taken == step:
            break
    return taken


@shows(Reason.STORE_FULL)
def test_the_store_has_no_room(topic: ReasonTopic) -> None:
    """Files of this process are limited to 2,000 bytes, which is a full disk for a folder store."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with topic.desk() as desk:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, hard))
        try:
            eventually(lambda: desk.work().not_copied_reason == Reason.STORE_FULL)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, before)
        assert "key=" in (desk.status.not_copied or "")
        eventually(lambda: desk.work().not_copied_reason == Reason.ALL_COPIED)


@shows(Reason.TIER_STATE_AWAY)
def test_the_tier_state_topic_cannot_be_read(topic: ReasonTopic) -> None:
    with topic.desk() as desk:
        topic.seen(desk.job)
        topic.admin.delete_topics([topic.spec.name])[topic.spec.name].result(30)
        for act in ACTS:
            desk.says(act, Reason.TIER_STATE_AWAY, ".*")


@shows(Reason.ACCESS_DENIED)
def test_the_agent_may_not_ask(topic_for: NewReasonTopic) -> None:
    topic = topic_for()
    with topic.denied(ResourceType.TOPIC, topic.name, AclOperation.DESCRIBE_CONFIGS), topic.desk() as desk:
        for act in ACTS:
            desk.says(act, Reason.ACCESS_DENIED, f".* topic={topic.name} .*")  # configs belong to a topic


@shows(Reason.FAILED)
def test_the_topic_is_gone(topic_for: NewReasonTopic) -> None:
    topic = topic_for()
    with topic.desk() as desk:
        desk.work()
        topic.admin.delete_topics([topic.name])[topic.name].result(30)
        for act in ACTS:
            desk.says(act, Reason.FAILED, f".* partition={topic.name}-0 .*")  # bounds are asked for first
