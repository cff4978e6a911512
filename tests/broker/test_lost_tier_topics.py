"""No process uses a tier-state topic that lost facts or is missing, and the error names the way out."""

from __future__ import annotations

from contextlib import closing
from itertools import count

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.beheading import alter, cut
from tests.broker.test_tier_topic import spec_of
from tierstate.broker.raw import RawClient
from tierstate.broker.tier_topic import KafkaTierTopic
from tierstate.broker.tier_topic_setup import create_tier_topic, has_facts, look_at_tier_topic, open_tier_topic
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import BrokerUnavailable, InvalidRequest, TierStateLost, UnknownTopic
from tierstate.state.offsets import Position

pytestmark = pytest.mark.kafka
NUMBER = count()
RECOVER = r"tierstate recover \(docs/operations.md#the-tier-state-topic-is-lost\)"


@pytest.fixture
def name() -> str:
    return f"lost-tier-state-{next(NUMBER)}"


@pytest.fixture
def properties(kafka: KafkaSandbox) -> dict[str, str]:
    return {"bootstrap.servers": kafka.bootstrap}


def test_a_topic_whose_offsets_are_unknown_is_not_taken_for_one_without_facts(
    properties: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*arguments: object) -> None:
        raise BrokerUnavailable("its leader does not answer")

    assert not has_facts(properties, name)
    create_tier_topic(properties, spec_of(name), SystemClock().now_ms())
    assert not has_facts(properties, name)
    with closing(open_tier_topic(properties, spec_of(name))) as topic:
        topic.append(1, "some/key", b"v")
    assert has_facts(properties, name)
    monkeypatch.setattr(RawClient, "list_offsets", unknown)
    monkeypatch.setattr("tierstate.broker.tier_topic.END_PATIENCE_S", 0.0)
    with pytest.raises(BrokerUnavailable):
        has_facts(properties, name)


def ends(properties: dict[str, str], name: str) -> dict[int, Position]:
    topic = KafkaTierTopic(properties, name, "", 0)
    try:
        return topic.ends([0, 1])
    finally:
        topic.close()


@pytest.mark.parametrize("partition", [0, 1])
def test_a_topic_that_lost_its_head_is_not_opened_and_not_repaired_by_init(
    kafka: KafkaSandbox, properties: dict[str, str], name: str, partition: int
) -> None:
    create_tier_topic(properties, spec_of(name), SystemClock().now_ms())
    topic = open_tier_topic(properties, spec_of(name))
    topic.append(partition, "some/key", b"v"), topic.append(partition, "other/key", b"v")
    start = topic.end(partition) - 1
    cut(kafka, name, partition, start)
    before = ends(properties, name)
    message = rf"^partition {partition} of {name} begins at {start}: its head is gone .*{RECOVER}"
    for attempt in (
        lambda: open_tier_topic(properties, spec_of(name)),
        lambda: create_tier_topic(properties, spec_of(name), SystemClock().now_ms()),
    ):
        with pytest.raises(TierStateLost, match=message):
            attempt()
    assert ends(properties, name) == before, "no meta fact was written over what is gone"
    assert [problem.partition(":")[0] for problem in topic.problems()] == [
        f"partition {partition} of {name} begins at {start}"
    ], "who has it open already hears of it too"
    topic.close()


def test_a_topic_of_which_nothing_is_left_does_not_look_like_a_new_one(
    kafka: KafkaSandbox, properties: dict[str, str], name: str
) -> None:
    create_tier_topic(properties, spec_of(name), SystemClock().now_ms())
    cut(kafka, name, 0, -1)
    with pytest.raises(TierStateLost, match=r"partition 0 of .* begins at 1"):
        create_tier_topic(properties, spec_of(name), SystemClock().now_ms())


def test_a_topic_that_is_not_there_is_answered_with_both_ways(properties: dict[str, str], name: str) -> None:
    with pytest.raises(UnknownTopic, match=rf"does not exist: tierstate init makes it, .* lost: .*{RECOVER}"):
        open_tier_topic(properties, spec_of(name))
    assert not look_at_tier_topic(properties, spec_of(name)).there


def test_a_topic_that_a_stray_client_recreated_is_refused_with_the_way_out(
    properties: dict[str, str], name: str
) -> None:
    """The topic has the broker's own defaults, by ``auto.create.topics.enable``."""
    admin = AdminClient(properties)
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    producer = Producer(properties)
    producer.produce(name, b"stray", partition=1)
    assert producer.flush(30) == 0
    message = rf"but by some client .*: delete it with Kafka's own tools; tierstate init makes it.*{RECOVER}"
    for attempt in (
        lambda: create_tier_topic(properties, spec_of(name), SystemClock().now_ms()),
        lambda: open_tier_topic(properties, spec_of(name)),
    ):
        with pytest.raises(InvalidRequest, match=message):
            attempt()
    assert ends(properties, name) == {0: 0, 1: 1}
    assert "cleanup.policy is delete, compact is wanted" in look_at_tier_topic(properties, spec_of(name)).problems


def test_a_new_topic_without_its_fact_is_given_it(properties: dict[str, str], name: str) -> None:
    """`tierstate init` was killed between the two steps."""
    admin = AdminClient(properties)
    admin.create_topics([NewTopic(name, 2, 1, config=spec_of(name).config)])[name].result(30)
    assert create_tier_topic(properties, spec_of(name), SystemClock().now_ms())
    assert look_at_tier_topic(properties, spec_of(name)).problems == []
    alter(admin, name, "min.compaction.lag.ms", "0")
    with pytest.raises(InvalidRequest, match="not safe to use"):
        create_tier_topic(properties, spec_of(name), SystemClock().now_ms())
