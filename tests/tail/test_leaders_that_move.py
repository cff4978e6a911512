"""One agent copies by Fetch from three brokers: leaders are killed under transactions, and logs are cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.leaders import in_sync, leader_of
from tests.scenarios.house import House, eventually, run
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]
MOVED_S = 120.0
"""Seconds for an election and what follows it, on a busy machine."""
LARGE = {"internal.segment.bytes": str(4 << 20)}
LATE = ("--set", "copy.roll_bytes=200KiB", "--set", "copy.roll_after=1h", "--set", "trim.enabled=false")
"""With `LARGE`, the spool holds a hundred kilobytes for as long as a test likes."""


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


def copied_to(house: House, topic: str) -> int:
    facts = house.json("describe", f"{topic}:0")[0]
    return int(facts["highest_remote_offset"] or -1)


def begins(house: House, topic: str) -> int | None:
    """Return the topic's log start; None before its first term."""
    done = run("describe", f"{topic}:0", "--json", "--config", str(house.config))
    return json.loads(done.stdout)[0]["log_start_offset"] if done.returncode == 0 else None


def both_digests(house: House, topic: str, *flags: str) -> list[Any]:
    return [house.digests(topic, "--isolation", each, *flags) for each in ("read_committed", "read_uncommitted")]


def findings(house: House, topic: str) -> list[Any]:
    """Return what `verify` finds, without what waits for the next sweep."""
    done = house.run("verify", topic, "--level", "3", "--json")
    return [each for each in json.loads(done.stdout)["findings"] if each["severity"] != "waiting"]


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


def spooled(house: FetchHouse) -> int:
    """Return the bytes in the agent's spool."""
    return sum(path.stat().st_size for path in (house.folder / "state").rglob("spool/*/*.log"))


def test_what_an_unclean_election_lost_leaves_the_spool_uncopied(house: FetchHouse) -> None:
    """The spool holds records that only the lost leader had, when another replica is elected."""
    lossy = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1", **LARGE}
    topic = create(house, "unclean", [[0, 1]], **lossy)
    with house.agent(*LATE):
        house.append(topic, 100)
        eventually(lambda: in_sync(house.kafka, topic) == 2, MOVED_S)
        house.kafka.kill(1)
        eventually(lambda: in_sync(house.kafka, topic) == 1, MOVED_S)
        before = spooled(house)
        house.append(topic, 400, first=100)
        eventually(lambda: spooled(house) > before + 40_000, MOVED_S)
        assert copied_to(house, topic) == -1
        house.kafka.kill(0)
        house.kafka.start(1)
        eventually(lambda: leader_of(house.kafka, topic) == node(house, 1), MOVED_S)
        house.append(topic, 3000, first=1000)  # other records at the same offsets
        eventually(lambda: copied_to(house, topic) > 1000, MOVED_S)
        house.kafka.start(0)
    read = house.run("consume", f"{topic}:0", "--format", "%s\n").stdout.split()
    assert [int(each) for each in read] == [*range(100), *range(1000, 4000)]
    assert both_digests(house, topic) == both_digests(house, topic, "--via", "broker")
    assert findings(house, topic) == []


def test_a_topic_that_is_created_again_under_its_name_gets_nothing_of_the_spool(house: FetchHouse) -> None:
    topic = create(house, "again", [[0, 1, 2]], **LARGE)
    with house.agent(*LATE):
        house.append(topic, 400)
        eventually(lambda: spooled(house) > 40_000, MOVED_S)
        admin: Any = AdminClient({**house.kafka.client_config, "log_level": 0})
        admin.delete_topics([topic])[topic].result(30)
        eventually(lambda: topic not in admin.list_topics(timeout=10).topics, MOVED_S)
        assert create(house, "again", [[0, 1, 2]], **LARGE) == topic
        house.append(topic, 3000, first=1000)
        eventually(lambda: copied_to(house, topic) > 1000, MOVED_S)
    read = house.run("consume", f"{topic}:0", "--format", "%s\n").stdout.split()
    assert [int(each) for each in read] == [*range(1000, 4000)]
    assert findings(house, topic) == []


def test_what_somebody_deletes_while_it_is_fetched_is_a_gap_and_the_rest_is_copied(house: FetchHouse) -> None:
    """An agent on the broker's host reports the same: the offsets were never copied, and no reader is given them."""
    topic = create(house, "cut", [[0, 1, 2]], **LARGE)
    with house.agent(*LATE):
        house.append(topic, 400)
        eventually(lambda: spooled(house) > 40_000, MOVED_S)
        eventually(lambda: begins(house, topic) == 0, MOVED_S)  # otherwise nothing below 300 was ever tiered
        admin: Any = AdminClient({**house.kafka.client_config, "log_level": 0})
        start = TopicPartition(topic, 0, 300)
        admin.delete_records([start])[start].result(30)
        gap = [{"start": 0, "end": 299}]
        eventually(lambda: house.json("describe", f"{topic}:0", code=4)[0]["gaps"] == gap, MOVED_S)
        house.append(topic, 3000, first=400)
        eventually(
            lambda: int(house.json("describe", f"{topic}:0", code=4)[0]["highest_remote_offset"] or 0) > 1000, MOVED_S
        )
    read = house.run("consume", f"{topic}:0", "--from", "300", "--format", "%s\n").stdout.split()
    assert [int(each) for each in read] == [*range(300, 3400)]
