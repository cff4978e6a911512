"""A process changes the bucket only while it has a proof that no other cluster writes below the same prefix."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest

from tests.follower.claimed_bucket import DATA, PERIOD, TRIAL, Agent, Bucket
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.follower.envelope import unseal
from tierstate.follower.heartbeat import KIND, Heartbeat
from tierstate.follower.object_names import ROOT, agents_prefix
from tierstate.follower.prefix_claim import FORGET_S
from tierstate.rules.prefix import FIRST_TRIAL_S, SILENCE_MS, SILENT_PERIODS
from tierstate.state.errors import PrefixContested, StorageUnavailable, Unavailable
from tierstate.state.ids import COPIER


def test_a_copy_of_a_running_cluster_changes_nothing_and_both_sides_say_so(
    bucket: Bucket, topic: MemoryTierTopic
) -> None:
    production = bucket.begin(topic)
    clone = bucket.agent(topic.copied(), place="host2:/data")
    for _ in range(2 * SILENT_PERIODS):
        bucket.pass_periods(1, production, clone)
        for change in (clone.store.delete, lambda key: clone.store.put_if_absent(f"{key}2", b"")):
            with pytest.raises(Unavailable):
                change(DATA)
    assert "host2" in str(production.claim.contested)
    assert "host1" in str(clone.claim.contested)
    with pytest.raises(Unavailable):
        production.store.delete(DATA)
    with pytest.raises(PrefixContested):
        clone.claim.check()


def test_a_clone_of_another_broker_is_found_out_too(bucket: Bucket, topic: MemoryTierTopic) -> None:
    production, other = bucket.begin(topic), bucket.agent(topic, 2)
    bucket.pass_periods(2, production, other)
    copied = topic.copied()
    clone = bucket.agent(copied, 3)
    bucket.pass_periods(2 * SILENT_PERIODS, production, other, clone)
    assert all(agent.claim.contested for agent in (production, other, clone))


@pytest.mark.parametrize("clean", [True, False])
def test_a_copy_finds_out_that_production_ran_on_after_it_was_taken(
    bucket: Bucket, topic: MemoryTierTopic, clean: bool
) -> None:
    production, copied = bucket.begin(topic), topic.copied()
    bucket.clock.advance(3600)
    bucket.pass_periods(1, production)
    if clean:
        production.claim.leave()
    bucket.clock.advance(3600)
    clone = bucket.agent(copied)
    bucket.pass_periods(2 * SILENT_PERIODS, clone)
    assert clone.claim.contested


def test_a_restored_backup_copies_on_although_it_does_not_know_the_agents_of_its_lost_future(
    bucket: Bucket, topic: MemoryTierTopic
) -> None:
    production, restored = bucket.begin(topic), topic.copied()
    production.claim.leave()
    after = bucket.agent(restored)
    bucket.pass_periods(1, after)
    assert after.claim.contested
    after.store.put_if_absent("orders/next.log", b"")
    with pytest.raises(Unavailable):
        after.store.delete(DATA)


def test_a_copy_that_is_taken_while_all_is_down_deletes_nothing_and_production_finds_it_out(
    bucket: Bucket, topic: MemoryTierTopic
) -> None:
    bucket.begin(topic).claim.leave()
    clone = bucket.agent(topic.copied(), place="host2:/data")
    bucket.pass_periods(180, clone)
    assert clone.has_proof
    clone.store.put_if_absent("orders/its-own.log", b"")
    for change in (clone.store.delete, lambda key: clone.store.put_if_absent(f"{ROOT}{key}", b"")):
        with pytest.raises(Unavailable):  # the archive would go on under production's names
            change(DATA)
    production = bucket.agent(topic)
    bucket.pass_periods(2 * SILENT_PERIODS, production, clone)
    assert production.claim.contested
    assert clone.claim.contested


def test_a_copy_at_the_same_place_deletes_nothing_after_a_silence(bucket: Bucket, topic: MemoryTierTopic) -> None:
    bucket.begin(topic).claim.leave()
    bucket.clock.advance(SILENCE_MS / 1000 + PERIOD)
    clone = bucket.agent(topic.copied())
    bucket.pass_periods(1, clone)
    assert clone.has_proof
    assert not clone.may_delete
    bucket.clock.advance(TRIAL)
    bucket.pass_periods(1, clone)
    assert clone.may_delete


def test_a_copy_from_before_there_were_heartbeats_is_found_out(bucket: Bucket, topic: MemoryTierTopic) -> None:
    copied = topic.copied()
    first = bucket.agent(copied, place="host2:/data")
    bucket.pass_periods(2, first)
    assert not first.may_delete, "the bucket has objects, and nothing tells whose they are"
    production = bucket.agent(topic)
    bucket.pass_periods(2 * SILENT_PERIODS, first, production)
    assert first.claim.contested
    assert production.claim.contested


def test_a_cluster_that_begins_in_an_empty_bucket_waits_for_nothing(bucket: Bucket, topic: MemoryTierTopic) -> None:
    bucket.store.delete(DATA)
    agent = bucket.agent(topic)
    agent.claim.beat()
    assert agent.may_delete


def test_after_an_upgrade_nothing_is_deleted_until_agents_of_before_would_have_archived(
    bucket: Bucket, topic: MemoryTierTopic
) -> None:
    agents = [bucket.agent(topic, broker) for broker in (1, 2, 3)]
    bucket.pass_periods(2, *agents)
    assert not any(agent.may_delete for agent in agents)
    bucket.pass_periods(int(FIRST_TRIAL_S / PERIOD), *agents)
    assert all(agent.may_delete for agent in agents)


def test_agents_that_begin_at_once_in_an_empty_bucket_wait_for_answers_only(
    bucket: Bucket, topic: MemoryTierTopic
) -> None:
    bucket.store.delete(DATA)
    agents = [bucket.agent(topic, broker) for broker in (1, 2, 3)]
    bucket.pass_periods(2, *agents)
    assert all(agent.may_delete for agent in agents)


@dataclass
class TwoTopics:
    """Two tier-state topics of one cluster, whose agents write below one prefix."""

    bucket: Bucket
    topics: dict[str, MemoryTierTopic]

    def agent(self, topic: MemoryTierTopic, place: str = "host1:/data") -> Agent:
        @contextmanager
        def opened(topic_id: str) -> Iterator[MemoryTierTopic | None]:
            yield self.topics.get(topic_id)

        return self.bucket.agent(topic, place=place, others=opened)


def test_agents_of_two_tier_state_topics_of_one_cluster_share_a_prefix(bucket: Bucket) -> None:
    topics = [MemoryTierTopic(1, f"{name}" * 22, bucket.clock) for name in "AB"]
    two = TwoTopics(bucket, {topic.topic_id: topic for topic in topics})
    agents = [two.agent(topic) for topic in topics]
    bucket.pass_periods(2, *agents)
    assert all(agent.has_proof for agent in agents)
    agents[1].claim.leave()
    agents[1] = two.agent(topics[1])
    bucket.pass_periods(2, *agents)
    assert all(agent.has_proof for agent in agents)
    copied = topics[1].copied()
    clone = TwoTopics(bucket, {copied.topic_id: copied}).agent(copied, "host2:/data")
    bucket.pass_periods(2, *agents, clone)
    assert all(agent.claim.contested for agent in (*agents, clone))


def test_a_clean_restart_waits_for_nothing(bucket: Bucket, topic: MemoryTierTopic) -> None:
    bucket.begin(topic).claim.leave()
    bucket.clock.advance(60)
    after = bucket.agent(topic)
    after.claim.beat()
    assert after.may_delete


def test_a_restart_after_a_crash_copies_at_once_and_deletes_after_a_few_heartbeats(
    bucket: Bucket, topic: MemoryTierTopic
) -> None:
    bucket.begin(topic)
    after = bucket.agent(topic)
    with pytest.raises(Unavailable):
        after.store.put_if_absent("orders/before-it-looked.log", b"")
    after.claim.beat()
    after.store.put_if_absent("orders/next.log", b"")
    assert not after.has_proof
    bucket.pass_periods(SILENT_PERIODS, after)
    assert after.may_delete


def test_a_paused_process_has_lost_its_proof_before_its_successor_gets_one(
    bucket: Bucket, topic: MemoryTierTopic
) -> None:
    paused, after = bucket.begin(topic), bucket.agent(topic)
    while not after.has_proof:
        after.claim.beat()
        bucket.clock.advance(1)
    assert not paused.has_proof
    bucket.pass_periods(3 * SILENT_PERIODS, paused, after)
    assert after.may_delete
    assert not paused.has_proof, "two agents of one broker: the later one waits"


def test_agents_of_one_cluster_answer_each_other_and_never_stop(bucket: Bucket, topic: MemoryTierTopic) -> None:
    agents = [bucket.begin(topic), bucket.agent(topic, 2), bucket.agent(topic, 3)]
    bucket.pass_periods(2, *agents)
    assert all(agent.may_delete for agent in agents), "an old one vouches for the new ones"
    for at, broker in enumerate((1, 2, 3)):
        agents[at].claim.leave()
        agents[at] = bucket.agent(topic, broker, place="elsewhere:/data")
        bucket.pass_periods(2, *agents)
        assert all(agent.may_delete for agent in agents)


def test_agents_that_copy_by_fetch_do_not_wait_for_each_other_to_end(bucket: Bucket, topic: MemoryTierTopic) -> None:
    """Two agents of one broker would do each other's work; the agents by Fetch share it by a group."""
    first, second = (bucket.agent(topic, COPIER, place) for place in ("pod1:", "pod2:"))
    bucket.pass_periods(2, first)
    bucket.pass_periods(2, first, second)
    assert first.has_proof
    assert second.has_proof
    same = bucket.agent(topic, 1), bucket.agent(topic, 1)
    bucket.pass_periods(2, first, second, same[0])
    bucket.pass_periods(2, first, second, *same)
    assert [each.has_proof for each in same] == [True, False]


def test_a_broker_that_moved_to_another_host_while_it_is_alone_is_on_trial(
    bucket: Bucket, topic: MemoryTierTopic
) -> None:
    bucket.begin(topic).claim.leave()
    moved = bucket.agent(topic, place="host9:/data")
    moved.claim.beat()
    assert moved.has_proof
    assert not moved.may_delete


def test_a_trial_goes_on_after_a_restart(bucket: Bucket, topic: MemoryTierTopic) -> None:
    first = bucket.agent(topic)
    first.claim.beat()
    bucket.clock.advance(FIRST_TRIAL_S - 100)
    bucket.pass_periods(1, first)
    first.claim.leave()
    second = bucket.agent(topic)
    second.claim.beat()
    assert not second.may_delete
    bucket.clock.advance(100)
    second.claim.beat()
    assert second.may_delete


def test_a_trial_goes_on_after_a_crash_right_after_it_began(bucket: Bucket, topic: MemoryTierTopic) -> None:
    bucket.begin(topic).claim.leave()
    bucket.clock.advance(SILENCE_MS / 1000 + PERIOD)
    bucket.agent(topic).claim.beat()
    after = bucket.agent(topic)
    bucket.pass_periods(int(FIRST_TRIAL_S / PERIOD) + SILENT_PERIODS, after)
    assert after.has_proof
    assert not after.may_delete


def test_a_process_that_said_goodbye_changes_nothing(bucket: Bucket, topic: MemoryTierTopic) -> None:
    agent = bucket.begin(topic)
    agent.claim.leave()
    with pytest.raises(Unavailable):
        agent.store.put_if_absent("orders/late.log", b"")


def test_a_proof_is_over_when_the_store_does_not_answer(bucket: Bucket, topic: MemoryTierTopic) -> None:
    agent = bucket.begin(topic)

    def away(operation: str, key: str, writes: int) -> None:
        raise StorageUnavailable("away", key=key)

    bucket.store._faults = away
    bucket.clock.advance(59)
    agent.claim.beat()
    assert agent.has_proof
    bucket.clock.advance(1)
    agent.claim.beat()
    assert not agent.has_proof


def test_a_caller_that_waits_for_a_proof_hears_that_the_store_is_away(bucket: Bucket, topic: MemoryTierTopic) -> None:
    def away(operation: str, key: str, writes: int) -> None:
        raise StorageUnavailable("away", key=key)

    class Passing(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            bucket.clock.advance(PERIOD)
            return False

    agent = bucket.agent(topic)
    bucket.store._faults = away
    agent.claim.beat()
    with pytest.raises(Unavailable, match="nothing is changed in the bucket: away"):
        agent.claim.wait(Passing())


def test_a_copy_of_the_memory_of_a_process_is_found_out_by_its_heartbeat(
    bucket: Bucket, topic: MemoryTierTopic
) -> None:
    production = bucket.begin(topic)
    process = next(iter(bucket.store.list(agents_prefix("cluster")))).key
    beat = unseal(bucket.store.get(process), KIND, Heartbeat, source="")[0]
    written = replace(beat, token="another").sealed()
    assert bucket.store.replace_if_same(process, written, bucket.store.get(process))
    production.claim.beat()
    assert not production.has_proof


@pytest.mark.parametrize("is_there", [True, False], ids=["an older heartbeat", "no heartbeat"])
def test_a_process_knows_a_rolled_back_bucket_by_its_own_heartbeat_and_goes_on(
    is_there: bool, bucket: Bucket, topic: MemoryTierTopic
) -> None:
    production = bucket.begin(topic)
    (key,) = (info.key for info in bucket.store.list(agents_prefix("cluster")))
    before = bucket.store.get(key)
    bucket.pass_periods(3, production)
    bucket.store.delete(key)
    if is_there:
        bucket.store.put_if_absent(key, before)
    production.claim.beat()
    assert (production.claim.heartbeats_lost, production.has_proof) == (1, False)
    bucket.pass_periods(2 * SILENT_PERIODS, production)
    bucket.clock.advance(TRIAL)
    bucket.pass_periods(1, production)
    assert (production.claim.heartbeats_lost, production.has_proof, production.may_delete) == (1, True, True)


def test_heartbeats_of_brokers_that_are_gone_are_deleted_after_a_day(bucket: Bucket, topic: MemoryTierTopic) -> None:
    stays, goes = bucket.begin(topic), bucket.agent(topic, 2)
    bucket.pass_periods(2, stays, goes)
    goes.claim.leave()
    stays.claim.beat()
    assert len(list(bucket.store.list(agents_prefix("cluster")))) == 2
    bucket.clock.advance(FORGET_S)
    bucket.pass_periods(1, stays)
    assert len(list(bucket.store.list(agents_prefix("cluster")))) == 1
