"""A process of a later release wrote facts, and this release goes on next to it or after it: nothing is lost, all
processes report what to upgrade, none writes about the partition, and none advises a recovery.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.later_release import LATER, later_kind, later_version
from tests.scenarios.house import House, eventually, get, run
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.schemas.codec import RELEASE
from tierstate.schemas.records import from_record
from tierstate.state.facts import LogStartAdvanced
from tierstate.state.ids import TopicId, TopicIdPartition
from tierstate.state.keys import tier_partition_of

pytestmark = pytest.mark.kafka

RECORDS = 2_500
RECOVER = "tierstate recover"


@pytest.fixture
def house(kafka: KafkaSandbox, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[House]:
    made = House(kafka, tmp_path / "house", request.node.name.removeprefix("test_")[:40].strip("_").replace("_", "-"))
    yield made
    made.close()


def tiered(house: House, name: str) -> str:
    """Return a topic that is copied and trimmed; no agent runs."""
    topic = house.create(name)
    house.append(topic, RECORDS)
    house.run("agent", "--once")
    eventually(lambda: len(house.logs(topic)) == 1)
    return topic


def place_of(house: House, topic: str) -> TopicIdPartition:
    return TopicIdPartition(TopicId(house.json("describe", topic)[0]["topic_id"]), 0)


def write(house: House, place: TopicIdPartition, *facts: tuple[str, bytes | None]) -> None:
    """Append facts as the process of another release does."""
    producer: Any = Producer({**house.kafka.client_config, "log_level": 0})
    for key, value in facts:
        producer.produce(house.tier_topic, key=key, value=value, partition=tier_partition_of(place, 2))
    assert producer.flush(30) == 0


def log_start_of_later_version(house: House, topic: str) -> list[tuple[str, bytes | None]]:
    """Return the facts of an agent that moved the log start and erased the lower one, before it was rolled back."""
    lines = house.lines("facts", f"{topic}:0")
    entry = next(each for each in lines if "/log-start/" in each["key"])
    fact = from_record(LogStartAdvanced, entry, json=True)
    return [(f"{entry['key']}9", later_version(fact)), (entry["key"], None)]


def test_a_log_start_of_a_later_version_after_a_rollback(house: House) -> None:
    house.run("init")
    topic, beside = tiered(house, "t"), tiered(house, "u")
    objects = house.objects()
    write(house, place_of(house, topic), *log_start_of_later_version(house, topic))
    before = house.lines("facts", f"{topic}:0")
    house.append(topic, RECORDS, first=RECORDS)
    for command in ("consume", f"{topic}:0"), ("digest", topic), ("consume", f"{topic}:0", "--from", "3000"):
        done = house.run(*command, code=5)
        assert LATER in done.stderr
        assert RECOVER not in done.stderr
    described = house.run("describe", topic).stdout
    assert LATER in described
    labels = {line.strip().partition("  ")[0] for line in described.splitlines()}
    assert not labels & {"FACTS LOST", "GAP", "CUT ELSEWHERE"}
    checked = {each["check"]: each for each in house.json("check", code=1)}
    assert [name for name, each in checked.items() if not each["ok"]] == ["release"]
    assert LATER in checked["release"]["detail"]
    assert RECOVER not in house.run("verify", topic, "--level", "3", code=1).stdout
    assert house.holds(beside, RECORDS)
    with house.agent() as agent:
        management = agent.says("agent ready")["management"]
        eventually(lambda: LATER.encode() in (ready := get(f"http://{management}/readyz"))[1] and ready[0] == 503)
        house.append(beside, RECORDS, first=RECORDS)
        eventually(lambda: len(house.logs(beside)) == 1)
        eventually(lambda: LATER in run("recover", "--config", str(house.config)).stdout)  # once that fact is archived
    _, url = house.gateway()
    status, body = get(f"{url}/v1/topics/{topic}/partitions/0/records?offset=0")
    assert status == 503
    assert b"UpgradeNeeded" in body
    assert house.lines("facts", f"{topic}:0") == before
    assert set(objects) <= set(house.objects())
    plan = house.run("recover", code=4)
    assert LATER in plan.stdout + plan.stderr


def test_a_kind_of_a_later_release_that_may_be_ignored_changes_nothing(house: House) -> None:
    house.run("init")
    topic = tiered(house, "t")
    write(house, place_of(house, topic), later_kind(place_of(house, topic), 1, RELEASE))
    house.append(topic, RECORDS, first=RECORDS)
    house.run("agent", "--once")
    eventually(lambda: len(house.logs(topic)) == 1)
    assert house.holds(topic, 2 * RECORDS)
    assert all(each["ok"] for each in house.json("check"))
    house.run("verify", topic, "--level", "3")
    write(house, place_of(house, topic), later_kind(place_of(house, topic), 2, "9.0.0"))
    checked = {each["check"]: each for each in house.json("check", code=1)}
    assert LATER in checked["release"]["detail"]
    assert house.holds(topic, 2 * RECORDS)
