"""A person decides which cluster keeps a prefix of the bucket, and the other cluster stays stopped."""

from __future__ import annotations

import pytest

from tests.follower.claimed_bucket import Agent, Bucket
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.follower.heartbeat import Decision, keep_prefix
from tierstate.follower.object_names import agents_prefix
from tierstate.rules.prefix import SILENCE_MS, SILENT_PERIODS
from tierstate.state.offsets import TimestampMs


def test_a_command_ends_the_trial_of_no_agent(bucket: Bucket, topic: MemoryTierTopic) -> None:
    bucket.begin(topic).claim.leave()
    command = bucket.agent(topic, -1)
    command.claim.beat()
    assert command.may_delete
    moved = bucket.agent(topic, place="host9:/data")
    bucket.pass_periods(2, command, moved)
    assert moved.has_proof
    assert not moved.may_delete


def test_the_side_that_a_person_chose_goes_on_and_the_other_stays_stopped(
    bucket: Bucket, topic: MemoryTierTopic
) -> None:
    production, copied = bucket.begin(topic), topic.copied()
    clone = bucket.agent(copied, place="host2:/data")
    bucket.pass_periods(SILENT_PERIODS, production, clone)
    others = [info.key.rsplit("/", 1)[1] for info in bucket.store.list(agents_prefix("cluster"))][1:]
    keep_prefix(bucket.store, topic, "cluster", Decision(1, "P" * 22, others, True, "me@host", TimestampMs(0)))
    bucket.pass_periods(3 * SILENT_PERIODS, production, clone)
    assert production.may_delete
    assert clone.claim.contested
    again = bucket.agent(copied, place="host2:/data")
    bucket.pass_periods(SILENT_PERIODS, production, again)
    assert again.claim.contested
    assert production.may_delete, "a new process of the other side writes no heartbeat"
    production.claim.leave()
    after = bucket.agent(topic)
    bucket.pass_periods(SILENT_PERIODS, after)
    assert after.may_delete


def test_a_command_that_ends_while_agents_start_does_not_use_up_the_decision_of_a_person(
    bucket: Bucket, topic: MemoryTierTopic
) -> None:
    lost = MemoryTierTopic(1, "L" * 22, bucket.clock)
    bucket.begin(lost).claim.leave()
    of_lost = [each.key.rsplit("/", 1)[1] for each in bucket.store.list(agents_prefix("cluster"))]
    keep_prefix(bucket.store, topic, "cluster", Decision(1, "P" * 22, of_lost, True, "me@host", TimestampMs(0)))
    command, agents = bucket.agent(topic, -1), [bucket.agent(topic, broker) for broker in (1, 2, 3)]
    for each in (command, *agents):
        each.claim.beat()
    command.claim.leave()
    bucket.pass_periods(2, *agents)
    agents.append(bucket.agent(topic, -1))
    bucket.pass_periods(2 * SILENT_PERIODS, *agents)
    assert [each.may_delete for each in agents] == [True] * 4


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_a_decision_ends_the_trial_of_every_agent_that_runs(
    bucket: Bucket, topic: MemoryTierTopic, order: tuple[int, int, int]
) -> None:
    bucket.begin(topic).claim.leave()
    bucket.clock.advance(SILENCE_MS / 1000)
    agents = [bucket.agent(topic, broker, "host9:/data") for broker in (1, 2, 3)]
    bucket.pass_periods(2 * SILENT_PERIODS, *agents)
    assert [each.has_proof and not each.may_delete for each in agents] == [True] * 3
    keep_prefix(bucket.store, topic, "cluster", Decision(1, "P" * 22, [], True, "me@host", TimestampMs(0)))
    bucket.pass_periods(2, *(agents[each] for each in order))
    assert [each.may_delete for each in agents] == [True] * 3


@pytest.mark.parametrize("late", [0, 1, 2, SILENT_PERIODS])
def test_a_decision_counts_for_every_agent_that_starts_after_it(
    bucket: Bucket, topic: MemoryTierTopic, late: int
) -> None:
    bucket.begin(topic)  # it crashes: the next ones wait until it was silent for long enough
    keep_prefix(bucket.store, topic, "cluster", Decision(1, "P" * 22, [], True, "me@host", TimestampMs(0)))
    agents = list[Agent]()
    for broker in (1, 2, 3):
        agents.append(bucket.agent(topic, broker, "host9:/data"))
        bucket.pass_periods(late, *agents)
    bucket.pass_periods(2 * SILENT_PERIODS, *agents)
    assert [each.may_delete for each in agents] == [True] * 3


def test_a_decision_does_not_count_for_a_copy_that_starts_later(bucket: Bucket, topic: MemoryTierTopic) -> None:
    keep_prefix(bucket.store, topic, "cluster", Decision(1, "P" * 22, [], True, "me@host", TimestampMs(0)))
    production = bucket.begin(topic)
    assert production.may_delete
    production.claim.leave()
    clone = bucket.agent(topic.copied(), place="host2:/data")
    bucket.pass_periods(2 * SILENT_PERIODS, clone)
    assert clone.has_proof
    assert not clone.may_delete


def test_a_decision_for_a_cluster_that_then_lost_power_is_not_used_by_its_copy(
    bucket: Bucket, topic: MemoryTierTopic
) -> None:
    bucket.begin(topic)  # it crashes: the next agent has no proof yet when the disks are copied
    starting = bucket.agent(topic, 2, "host9:/data")
    starting.claim.beat()
    copied = topic.copied()
    keep_prefix(bucket.store, topic, "cluster", Decision(1, "P" * 22, [], True, "me@host", TimestampMs(0)))
    for _ in range(2):
        starting.claim.beat()  # its heartbeat shows the decision with the second one
    clone = bucket.agent(copied, 2, "host2:/data")
    bucket.pass_periods(2 * SILENT_PERIODS, clone)
    assert clone.claim.contested
    assert not clone.may_delete


def test_a_recovery_in_a_copy_takes_the_prefix_from_no_cluster(bucket: Bucket, topic: MemoryTierTopic) -> None:
    production, copied = bucket.begin(topic), topic.copied()
    production.claim.leave()
    others = [info.key.rsplit("/", 1)[1] for info in bucket.store.list(agents_prefix("cluster"))]
    keep_prefix(bucket.store, copied, "cluster", Decision(1, "P" * 22, others, False, "me@host", TimestampMs(0)))
    clone = bucket.agent(copied)
    bucket.pass_periods(SILENT_PERIODS, clone)
    assert clone.has_proof
    assert not clone.may_delete
    production = bucket.agent(topic)
    bucket.pass_periods(SILENT_PERIODS, clone, production)
    assert clone.claim.contested
    assert production.claim.contested
    keep_prefix(
        bucket.store, topic, "cluster", Decision(2, "Q" * 22, [clone.claim._process], True, "me", TimestampMs(0))
    )
    bucket.pass_periods(3 * SILENT_PERIODS, clone, production)
    assert clone.claim.contested
    assert production.may_delete
