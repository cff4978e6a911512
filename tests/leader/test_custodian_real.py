"""The custodian on a real broker: a deleted topic loses its objects and facts after the grace, its namesake nothing."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.leader.real import Job, RealTopic, eventually
from tierstate.broker.tier_topic_setup import open_tier_topic, read_meta
from tierstate.leader.custody import ClusterEvidence, Custodian, CustodyTools, led_by
from tierstate.leader.term import TermContext
from tierstate.rules.custody import CustodyPolicy, ending
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.id_source import RandomIds
from tierstate.runtime.operation import run
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.facts import LeaderElected, PartitionDeleted
from tierstate.state.object_keys import ObjectKeys
from tierstate.storage.directory import DirectoryStore

pytestmark = pytest.mark.kafka

GRACE_MS = 2_000


@pytest.fixture
def topic(kafka: KafkaSandbox, topic_name: str, tmp_path: Path) -> RealTopic:
    return RealTopic(kafka, topic_name[-80:].strip("-"), tmp_path / "store").create()


def custodian(topic: RealTopic, job: Job, opened: ExitStack) -> Custodian:
    clock = SystemClock()
    tier_topic = opened.enter_context(closing(open_tier_topic(topic.sandbox.client_config, topic.spec)))
    meta = read_meta(tier_topic)
    assert meta is not None
    control, me = job.broker.control, job.leader.context.log.agent_id
    store = DirectoryStore(topic.store_folder)
    log = job.leader.context.log
    context = TermContext(
        me, "127.0.0.1:1", tier_topic, job.view, control, log, clock, RandomIds(), store, ObjectKeys()
    )
    look = ClusterEvidence(control, meta.cluster_id, topic.spec.replication_factor, tier_topic.problems, clock)
    policy = CustodyPolicy(GRACE_MS, 0)
    custody = CustodyTools(context, look, policy, store, job.events.append)
    return Custodian(custody, led_by(control, topic.spec.name, me, meta.partitions))


def test_a_deleted_topic_loses_everything_after_the_grace_and_its_namesake_nothing(topic: RealTopic) -> None:
    topic.append(6_000)
    with ExitStack() as opened:
        job = opened.enter_context(topic.agent())
        job.run_once()
        old = topic.partition(job.broker)
        own = custodian(topic, job, opened)
        assert not run(own.steps())
        assert own.reasons == {}
        admin: Any = AdminClient({"bootstrap.servers": topic.sandbox.bootstrap, "log_level": 0})
        admin.delete_topics([topic.name])[topic.name].result(30)
        eventually(lambda: topic.name not in {each.name for each in job.broker.control.topics()})
        topic.create()
        topic.append(3_000)
    with ExitStack() as opened:  # an agent that runs once has ended
        job = opened.enter_context(topic.agent())
        job.run_once()
        new = topic.partition(job.broker)
        assert new != old
        kept = topic.remote_bytes(topic.seen(job))
        own = custodian(topic, job, opened)
        whole = job.view.partition(old)
        assert run(own.steps())
        assert len(job.view.partition(old).missing) == 1
        while run(own.steps()):
            pass
        assert job.view.partition(old).readable == whole.readable
        assert "its topic is missing" in own.reasons[old]

        def ended() -> bool:
            while run(own.steps()):
                pass
            return ending(job.view.partition(old)) is not None

        eventually(ended)
        assert {type(live.fact) for live in job.view.facts(old)} == {LeaderElected, PartitionDeleted}
        assert not list(topic.store_folder.rglob(f"*{old.topic_id}/**/*.*"))
        assert topic.remote_bytes(topic.seen(job)) == kept != b""
        assert job.view.partition(new).missing == ()
