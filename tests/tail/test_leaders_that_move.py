"""One agent copies by Fetch from three brokers: leaders are killed under transactions, and logs are cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.leaders import in_sync, leader_of
from tests.scenarios.house import House, eventually
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]
MOVED_S = 120.0
"""Seconds for an election and what follows it, on a busy machine."""


class FetchHouse(House):
    """A house whose agent copies by Fetch, in segments of its own size, or after seconds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        text = self.config.read_text().replace(f'log_dirs = ["{self.log_dir}"]', 'source = "fetch"')
        replicas = len(self.kafka.brokers)
        text = text.replace("replication_factor = 1", f"replication_factor = {replicas}")
        self.config.write_text(text + '[copy]\nroll_bytes = "20KiB"\nroll_after = "2s"\n')


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSandbox]:
    with KafkaSandbox(3) as kafka:
        yield kafka


@pytest.fixture
def house(three: KafkaSandbox, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FetchHouse]:
    made = FetchHouse(three, tmp_path, f"h{abs(hash(request.node.name)) % 10_000}")
    try:
        made.run("init")
        yield made
    finally:
        made.close()


def create(house: FetchHouse, topic: str, assignment: list[list[int]], **config: str) -> str:
    """Create a topic with these replicas (numbers of brokers) of each partition; the first one leads."""
    nodes = [[house.kafka.brokers[each].address.node_id for each in replicas] for replicas in assignment]
    name = f"{house.name}-{topic}"
    settings = {"internal.segment.bytes": "50000", "retention.ms": "-1", "local.retention.bytes": "0", **config}
    new = NewTopic(name, len(nodes), replica_assignment=nodes, config=settings)
    admin: Any = AdminClient({**house.kafka.client_config, "log_level": 0})  # a new one: the controller may have moved
    admin.create_topics([new])[name].result(30)
    return name


def node(house: FetchHouse, broker: int) -> int:
    return int(house.kafka.brokers[broker].address.node_id)


def another_leads(house: FetchHouse, topic: str, before: int | None) -> bool:
    return leader_of(house.kafka, topic) not in (None, before)


def write_transactions(house: FetchHouse, topic: str, rounds: int) -> None:
    """Commit three of four transactions, and abort the others; each one has records that a segment cannot hold."""
    producer = Producer(
        {**house.kafka.client_config, "transactional.id": topic, "linger.ms": 5, "batch.size": 4000, "log_level": 0}
    )
    producer.init_transactions(60)
    for number in range(rounds):
        producer.begin_transaction()
        for record in range(120):
            producer.produce(topic, b"%d/%d " % (number, record) * 20, b"key", 0)
            producer.poll(0)
        assert producer.flush(60) == 0
        if number % 4 == 3:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def copied_to(house: FetchHouse, topic: str) -> int:
    facts = house.json("describe", f"{topic}:0")[0]
    return int(facts["highest_remote_offset"] or -1)


def both_digests(house: FetchHouse, topic: str, *flags: str) -> list[Any]:
    return [house.digests(topic, "--isolation", each, *flags) for each in ("read_committed", "read_uncommitted")]


def findings(house: FetchHouse, topic: str) -> list[Any]:
    """Return what `verify` finds but for copies that a term abandoned: those wait to be swept."""
    done = house.run("verify", topic, "--level", "3", "--json")
    return [each for each in json.loads(done.stdout)["findings"] if "abandoned" not in json.dumps(each)]


def test_leaders_that_are_killed_under_transactions_leave_one_log(house: FetchHouse) -> None:
    topic = create(house, "killed", [[0, 1, 2]])
    with house.agent("--set", "trim.enabled=false"):
        for _ in range(2):
            write_transactions(house, topic, 8)
            leader = leader_of(house.kafka, topic)
            killed = next(each for each in range(3) if node(house, each) == leader)
            house.kafka.kill(killed)
            eventually(partial(another_leads, house, topic, leader), MOVED_S)
            write_transactions(house, topic, 8)
            house.kafka.start(killed)
            eventually(lambda: in_sync(house.kafka, topic) == 3, MOVED_S)
        end = house.json("describe", f"{topic}:0")[0]["high_watermark"]
        eventually(lambda: copied_to(house, topic) >= end - 1, MOVED_S)
    expected = both_digests(house, topic, "--via", "broker")
    assert both_digests(house, topic) == expected
    with house.agent():
        eventually(lambda: house.json("describe", f"{topic}:0")[0]["local_log_start_offset"] > end // 2, MOVED_S)
    assert both_digests(house, topic) == expected
    assert findings(house, topic) == []
