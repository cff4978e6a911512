"""``pause``, ``resume``, ``disable``, ``delete-records``, on a real broker with a real agent that obeys them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.scenarios.house import House, eventually
from tierstate.broker.open import open_broker
from tierstate.broker.tier_topic_setup import TierTopicSpec, open_tier_topic
from tierstate.runtime.id_source import RandomIds
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.schemas.codec import encode_fact
from tierstate.state.facts import ReaderLease
from tierstate.state.ids import FactId, TopicIdPartition
from tierstate.state.keys import key_of, tier_partition_of
from tierstate.state.offsets import Offset, OffsetRange, TimestampMs

pytestmark = pytest.mark.kafka
RECORDS = 3_000


@pytest.fixture(scope="module")
def house(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(kafka, tmp_path_factory.mktemp("orders") / "house", "orders")
    made.run("init")
    with made.agent("--set", "expire.grace=0s"):
        yield made
    made.close()


def described(house: House, topic: str, partition: int = 0) -> dict[str, Any]:
    (description,) = house.json("describe", f"{topic}:{partition}")
    assert isinstance(description, dict)
    return description


def said_by_agent(house: House, topic: str, key: str) -> str:
    agent = described(house, topic)["agent"]
    return str(agent.get(key) or "") if isinstance(agent, dict) else ""


def copied(house: House, topic: str) -> str:
    """Append, copy and trim down to the active segment; return the topic's name."""
    house.append(topic, RECORDS)
    eventually(lambda: len(house.logs(topic)) == 1)
    assert len(house.manifests(topic)) >= 3
    return topic


def plain_start(house: House, topic: str) -> tuple[int, int]:
    """Return the start for a consumer that knows no tiers: the broker's answer, and the first record it gets."""
    consumer: Any = Consumer({"bootstrap.servers": house.kafka.bootstrap, "group.id": "plain", "log_level": 0})
    try:
        low, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), 20)
        consumer.assign([TopicPartition(topic, 0, low)])
        first = consumer.poll(20)
        assert first is not None
        assert first.error() is None
        return low, first.offset()
    finally:
        consumer.close()


def test_a_paused_partition_is_not_copied_says_why_and_goes_on_when_it_is_resumed(house: House) -> None:
    topic = house.create("paused", partitions=2)
    would = house.json("pause", topic, "--dry-run")
    assert [(each["partition"], each["outcome"]) for each in would] == [
        (0, "would be ordered"),
        (1, "would be ordered"),
    ]
    assert described(house, topic)["orders"] == []

    ordered = house.json("pause", topic)
    assert [(each["partition"], each["stood"], each["outcome"]) for each in ordered] == [
        (0, None, "ordered"),
        (1, None, "ordered"),
    ]
    house.append(topic, RECORDS)
    (stands,) = described(house, topic)["orders"]
    assert stands.startswith("pause since ")
    assert f"ORDER  {stands}" in house.run("describe", f"{topic}:0").stdout
    again = house.run("pause", f"{topic}:1")
    assert "stands already" in again.stdout
    assert "paused already" in again.stderr
    house.append(copied(house, house.create("meanwhile")), 1, first=RECORDS)  # the agent has looked at everything
    assert house.manifests(topic) == []
    assert len(house.logs(topic)) > 1

    resumed = house.json("resume", f"{topic}:0")
    assert (resumed[0]["stood"], resumed[0]["outcome"]) == (stands, "ordered")
    eventually(lambda: len(house.logs(topic)) == 1)
    assert described(house, topic)["orders"] == []
    assert described(house, topic, 1)["orders"] != []
    assert "nothing was done" in house.run("resume", f"{topic}:0").stderr
    assert house.holds(topic, RECORDS)


@pytest.mark.slow
def test_the_agent_of_a_paused_partition_names_the_order_as_its_reason(house: House) -> None:
    topic = copied(house, house.create("reasons"))
    house.run("pause", topic)
    house.append(topic, RECORDS, first=RECORDS)
    reasons = ("not_copied", "not_trimmed", "not_expired", "not_erased")
    eventually(lambda: all(said_by_agent(house, topic, each).startswith("pause ordered by ") for each in reasons))
    assert "pause ordered by " in house.run("describe", topic).stdout


def test_delete_records_moves_the_start_of_both_tiers_and_takes_the_objects_below(house: House) -> None:
    topic = copied(house, house.create("deleted"))
    segments = house.json("segments", f"{topic}:0")
    before = len(house.manifests(topic))
    first, second = (each["offsets"]["end"] for each in segments[:2])
    inside = (first + second) // 2

    plan = house.json("delete-records", f"{topic}:0", "--before", str(inside))
    assert [each["offsets"] for each in plan["remote"]["segments"]] == [{"start": 0, "end": first}]
    assert plan["remote"]["stay_whole"] == [{"start": first + 1, "end": second}]
    assert (plan["order"], plan["obeyed"], plan["local"]["offset_count"]) == (None, None, 0)
    assert len(house.manifests(topic)) == before
    assert described(house, topic)["log_start_offset"] == 0

    done = house.json("delete-records", f"{topic}:0", "--before", str(inside), "--execute")
    assert done["obeyed"]["log_start_offset"] == inside
    eventually(lambda: len(house.manifests(topic)) == before - 1)
    assert described(house, topic)["log_start_offset"] == inside
    left = len(house.run("consume", f"{topic}:0", "--tier", "remote").stdout.splitlines())
    gateway, url = house.gateway()
    for flags in ((), ("--gateway", url)):
        (facts,), listed = (house.json(each, f"{topic}:0", *flags) for each in ("describe", "segments"))
        assert facts["remote_records"] == sum(each["remote_records"] for each in listed) == left
    gateway.stop()
    read = house.run("consume", f"{topic}:0", "-n", "1", "--format", "%o %s\\n").stdout
    assert read == f"{inside} {inside:0120d}\n"
    assert house.run("consume", f"{topic}:0", "--from", str(inside - 1), code=5).returncode == 5

    done = house.json("delete-records", f"{topic}:0", "--before", "-20", "--execute")
    last = RECORDS - 20
    assert (done["obeyed"]["log_start_offset"], done["obeyed"]["local_log_start_offset"]) == (last, last)
    eventually(lambda: house.manifests(topic) == [])
    assert plain_start(house, topic) == (last, last)
    eventually(lambda: described(house, topic)["orders"] == [])
    nothing = house.run("delete-records", f"{topic}:0", "--before", str(last), "--execute")
    assert "nothing to do" in nothing.stderr
    assert described(house, topic)["orders"] == []


def test_a_time_means_the_first_record_of_it_also_when_that_is_the_first_of_all(house: House) -> None:
    topic = copied(house, house.create("timed"))
    records = house.lines("consume", f"{topic}:0")
    for number in (0, RECORDS // 2):
        at = records[number]["timestamp"]
        expected = next(each["offset"] for each in records if each["timestamp"] >= at)
        assert house.json("delete-records", f"{topic}:0", "--before", f"@{at}")["before"] == expected


def test_a_lease_keeps_objects_until_the_order_is_given_with_force(house: House) -> None:
    topic = copied(house, house.create("leased"))
    with open_broker(house.kafka.client_config) as broker:
        partition = TopicIdPartition(broker.control.topic(topic).topic_id, 0)
    until = TimestampMs(int(time.time() * 1000) + 3_600_000)
    lease = ReaderLease(
        partition, FactId.of(RandomIds().uuid()), OffsetRange(Offset(0), Offset(9)), "spark job 7", until
    )
    facts = open_tier_topic(house.kafka.client_config, TierTopicSpec(house.tier_topic, 2, 1))
    facts.append(tier_partition_of(partition, 2), key_of(lease), encode_fact(lease))
    facts.close()
    kept = house.manifests(topic)[0]

    where = ("delete-records", f"{topic}:0", "--before", "latest")
    assert "LEASE  0..9 of spark job 7" in house.run(*where).stdout
    (shown,) = house.json(*where, "--execute")["leases"]
    assert shown["id"] == lease.id
    eventually(lambda: house.manifests(topic) == [kept])
    forced = house.json(*where, "--force", "--execute")
    assert forced["stands_already"] is False
    eventually(lambda: house.manifests(topic) == [])


@pytest.mark.slow
def test_an_order_to_delete_waits_for_a_paused_partition_and_is_carried_out_when_it_is_resumed(house: House) -> None:
    topic = copied(house, house.create("waiting"))
    house.run("pause", topic)
    done = house.json("delete-records", f"{topic}:0", "--before", "100", "--execute")
    assert "pause since " in done["waits_for"][0]
    assert done["obeyed"] is None
    again = house.json("delete-records", f"{topic}:0", "--before", "100", "--execute", "--no-wait")
    assert (again["stands_already"], again["order"]) == (True, done["order"])
    eventually(lambda: said_by_agent(house, topic, "not_expired").startswith("pause ordered by "))
    assert described(house, topic)["log_start_offset"] == 0
    house.run("resume", topic)
    eventually(lambda: described(house, topic)["log_start_offset"] == 100)


def test_a_disabled_topic_keeps_its_remote_tier_until_it_is_to_be_deleted(house: House) -> None:
    topic = copied(house, house.create("disabled"))
    before = house.manifests(topic)
    keep = ("disable", topic, "--remote", "keep")
    assert "--execute does it" in house.run(*keep).stderr
    assert described(house, topic)["orders"] == []
    (kept,) = house.json(*keep, "--execute")
    assert (kept["order"], kept["outcome"], kept["remote_segments"]) == ("disable-keep", "ordered", len(before))
    house.append(topic, RECORDS, first=RECORDS)
    eventually(lambda: said_by_agent(house, topic, "not_copied").startswith("disable-keep ordered by "))
    assert house.manifests(topic) == before
    assert house.holds(topic, 2 * RECORDS)

    local = described(house, topic)["local_log_start_offset"]
    (going,) = house.json("disable", topic, "--remote", "delete")
    assert (going["outcome"], going["segments_go"], going["local_log_start_offset"]) == (
        "would be ordered",
        len(before),
        local,
    )
    assert going["records_go"] == local
    house.run("disable", topic, "--remote", "delete", "--execute")
    eventually(lambda: house.manifests(topic) == [])
    assert described(house, topic)["log_start_offset"] == local
    assert plain_start(house, topic) == (local, local)
    assert "nothing was done" in house.run("disable", topic, "--remote", "delete", "--execute").stderr
    house.run("resume", topic)
    eventually(lambda: house.manifests(topic) != [])


def test_impossible_orders_are_refused_and_leave_no_fact(house: House) -> None:
    excluded = ("--set", "tiering.include=[]")
    topic = "nobodys-untouched"  # the agents of this house do not tier it
    admin: Any = AdminClient({"bootstrap.servers": house.kafka.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 1)], operation_timeout=30)[topic].result(30)
    house.append(topic, 10)
    for command, code, sentence in (
        (("pause", "no-such-topic"), 2, "topic=no-such-topic"),
        (("resume", f"{topic}:7"), 2, f"partition={topic}-7"),
        (("pause", topic, *excluded), 2, "tiering.include does not name it"),
        (("disable", topic, "--remote", "keep", "--execute", *excluded), 2, "tiering.include does not name it"),
        (("disable", f"{topic}:0", "--remote", "keep"), 2, "a whole topic is needed"),
        (("disable", topic), 2, "--remote"),
        (("delete-records", f"{topic}:0", "--before", "5", "--execute"), 2, "no agent has begun this partition"),
        (("delete-records", topic, "--before", "5"), 2, "one partition is needed"),
    ):
        assert sentence in house.run(*command, code=code).stderr, command
    assert house.lines("facts", topic) == []


def test_an_unstable_offset_is_refused_with_the_valid_range(house: House) -> None:
    topic = copied(house, house.create("beyond"))
    output = house.run("delete-records", f"{topic}:0", "--before", str(RECORDS + 1), "--execute", code=5).stderr
    assert f"valid_start=0 valid_end={RECORDS}" in output
    assert described(house, topic)["orders"] == []
