"""A cluster is destroyed in the middle of production: what was remote goes on in a new cluster, of another release.

Producers of every codec write with headers, and two of them in transactions; ten groups read and commit; one topic has
expired twice. Then brokers and agents are killed.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.scenarios import forked
from tests.scenarios.destroyed import Group, Writers, number_of, numbers_in, remote_ranges
from tests.scenarios.house import House, environment, eventually, run
from tests.scenarios.lost_topics import Row, read_rows
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.offsets import Extent

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]
SEGMENT = "10000"
GROUPS = 10
KEPT_BYTES = "20000"


class Case(NamedTuple):
    """``records``: the offsets in the remote tier of each partition before the end. ``kills``: of each restore."""

    release: str
    new_release: str
    brokers: int
    records: int
    kills: int


CASES = [
    pytest.param(Case("4.3.0", "3.9.1", brokers=1, records=400, kills=1), id="one broker, to 3.9.1"),
    pytest.param(Case("3.9.1", "4.3.0", brokers=3, records=1_500, kills=4), id="three brokers, to 4.3.0"),
    pytest.param(Case("4.3.0", "3.9.1", brokers=3, records=1_500, kills=4), id="three brokers, to 3.9.1"),
]


@dataclass
class Destroyed:
    """The cluster after its loss. ``remote``: what the bucket has, by topic and partition. ``backed_up``: the numbers
    of the records that each group had read at the last backup.
    """

    house: House
    topics: dict[str, int]
    numbers: Iterator[int] = field(default_factory=count)
    acknowledged: dict[tuple[str, int], dict[int, Row]] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    groups: list[Group] = field(default_factory=list)
    backed_up: dict[str, list[int]] = field(default_factory=dict)
    remote: dict[tuple[str, int], Extent] = field(default_factory=dict)

    def of_bucket(self, topic: str, partition: int) -> list[Row]:
        """Return the acknowledged records that the bucket has."""
        rows, extent = self.acknowledged[topic, partition], self.remote[topic, partition]
        return [rows[offset] for offset in sorted(rows) if extent.start <= offset < extent.end]


def create(house: House, topic: str, partitions: int, **config: str) -> str:
    """Create a topic with a replica on each broker."""
    name, size = f"{house.name}-{topic}", "segment.bytes" if house.kafka.release < "4" else "internal.segment.bytes"
    # markers have the time of today. Nothing is trimmed: groups read at the brokers
    settings = {size: SEGMENT, "segment.ms": str(10**15), "retention.ms": "-1", **config}
    admin = AdminClient({**house.kafka.client_config, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, len(house.kafka.brokers), config=settings)])[name].result(60)
    return name


def start_agents(house: House) -> list[Any]:
    """Start the agent of each broker, which has a settings file of its own."""
    agents = []
    for index, broker in enumerate(house.kafka.brokers):
        own = copy(house)
        own.config = house.folder / f"agent-{index}.toml"
        text = house.config.read_text().replace(f'"{house.log_dir}"', f'"{broker.log_dir}"')
        own.config.write_text(text.replace('/state"', f'/state-{index}"') + '[expire]\ngrace = "0s"\n')
        agents.append(own.start("agent"))
    return agents


def destroy(sandbox: KafkaSandbox, folder: Path, case: Case) -> Destroyed:
    """Let applications run on a cluster, and kill all of it."""
    house = House(sandbox, folder / "house", "destroyed")
    house.config.write_text(house.config.read_text().replace("_factor = 1", f"_factor = {case.brokers}"))
    house.run("init")
    orders, expiring = create(house, "orders", 2), create(house, "expiring", 1, **{"retention.bytes": KEPT_BYTES})
    left = Destroyed(house, {orders: 2, expiring: 1}, groups=[Group(f"g{number}") for number in range(GROUPS)])
    writers = Writers(sandbox.client_config, left.topics, left.numbers, left.acknowledged, left.aborted)
    writers.round()
    left.groups[3].goes_on(sandbox.client_config, expiring, 1, 1)
    stop = threading.Event()
    threading.Thread(target=writers.run, args=(stop,), daemon=True).start()
    agents = start_agents(house)
    try:
        eventually(lambda: [each for each in remote_ranges(house, orders) if each.end > case.records // 2][1:], 300)
        for number, group in enumerate(left.groups):
            group.goes_on(sandbox.client_config, orders, 2, None if number == GROUPS - 1 else 1 + 15 * number)
        house.run("backup")
        left.backed_up = {group.name: list(group.read) for group in left.groups}
        for group in left.groups[:-1]:  # the backup grows old
            group.goes_on(sandbox.client_config, orders, 2, 5)
        first = eventually(lambda: [each.start for each in remote_ranges(house, expiring) if each.start > 0], 300)
        eventually(lambda: [each for each in remote_ranges(house, expiring) if each.start > first[0]], 300)
        eventually(lambda: [each for each in remote_ranges(house, orders) if each.end > case.records][1:], 300)
        writers.in_the_middle.clear()
        assert writers.in_the_middle.wait(60)
    finally:
        stop.set()
        for index in range(case.brokers):
            sandbox.kill(index)
        for each in agents:
            each.process.kill()
        writers.destroyed()
    for topic in left.topics:
        left.remote |= {(topic, number): each for number, each in enumerate(remote_ranges(house, topic))}
    return left


@dataclass
class NewCluster:
    """Runs restores into it, and kills them."""

    kafka: KafkaSandbox
    left: Destroyed

    def command(self, *words: str) -> list[str]:
        return [
            "restore",
            *words,
            "--store",
            self.left.house.store.as_uri(),
            "--bootstrap-server",
            self.kafka.bootstrap,
        ]

    def end(self, topic: str) -> int:
        """Return the end of partition 0; -1 before there is such a topic."""
        consumer: Any = Consumer({**self.kafka.client_config, "group.id": "end", "log_level": 0})
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1])
        except KafkaException:
            return -1
        finally:
            consumer.close()

    def has_offset(self, group: str, topic: str) -> bool:
        consumer: Any = Consumer({**self.kafka.client_config, "group.id": group, "log_level": 0})
        try:
            return any(each.offset >= 0 for each in consumer.committed([TopicPartition(topic, 0)], timeout=30))
        finally:
            consumer.close()

    def restore(self, topic: str, kills: int, report: Path) -> None:
        words = self.command(topic, "--into", topic, "--source", "bucket", "--execute")
        whole = self.left.remote[topic, 0]
        moments = [-1, *(number * (whole.end - whole.start) // (kills + 1) for number in range(kills))]
        for end in moments[: kills + 1]:
            forked.killed([*words, "--max-rate", "60kB"], environment(), lambda: self.end(topic) > end)  # noqa: B023 - called at once
        done = run(*words, "--verify", str(report))
        assert done.returncode == 0, done.stderr

    def restore_groups(self, topic: str, kills: int) -> None:
        words = self.command("groups", topic, "--execute")
        for number in range(kills):
            forked.killed(words, environment(), lambda: self.has_offset(f"g{number}", topic))  # noqa: B023 - called at once
        done = run(*words)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("case", CASES)
def test_what_was_remote_goes_on_in_a_new_cluster(
    tmp_path: Path, case: Case, record_property: Callable[[str, object], None]
) -> None:
    with ExitStack() as opened:
        left = destroy(opened.enter_context(KafkaSandbox(case.brokers, release=case.release)), tmp_path, case)
        opened.callback(left.house.close)
        kafka = opened.enter_context(KafkaSandbox(case.brokers, release=case.new_release))
        new, client = NewCluster(kafka, left), kafka.client_config
        orders, expiring = left.topics
        began = time.monotonic()
        for topic in left.topics:
            report = tmp_path / f"{topic}.json"
            new.restore(topic, case.kills, report)
            assert {each["outcome"] for each in json.loads(report.read_text())["ranges"]} == {"equal"}
        topics_s = time.monotonic() - began
        for topic in left.topics:
            new.restore_groups(topic, case.kills)
        groups_s = time.monotonic() - began - topics_s
        restored = nothing_is_lost_or_twice(left, client)
        for group in left.groups:
            goes_on_at_the_next_record(left, group, group.goes_on(client, orders, 2), restored)
        left.groups[3].goes_on(client, expiring, 1)
        applications_go_on(left, client, restored)
        seen = [number for numbers in restored.values() for number in numbers]
        lost = sum(len(rows) for rows in left.acknowledged.values()) - len(seen)
        times = {"records": len(seen), "lost": lost, "topics_s": round(topics_s, 1), "groups_s": round(groups_s, 1)}
        record_property("destroyed cluster", {**case._asdict(), **times})
        print(case, times)


def nothing_is_lost_or_twice(left: Destroyed, client: dict[str, str]) -> dict[tuple[str, int], list[int]]:
    """Return the numbers of the restored records, after all checks."""
    restored = {}
    for place in left.remote:
        rows = [row for _, row in read_rows(client, *place, 2**62)]
        numbers = numbers_in(client, *place)
        assert len(set(numbers)) == len(numbers), "a record is there twice"
        assert not set(numbers) & left.aborted, "a record of an aborted transaction is there"
        expected = left.of_bucket(*place)
        unsure = [row for row in rows if row not in expected]
        """Of a transaction or batch whose answer was lost with the cluster."""
        assert [row for row in rows if row not in unsure] == expected
        restored[place] = numbers
    assert all(len(numbers) > 100 for numbers in restored.values())
    return restored


def goes_on_at_the_next_record(
    left: Destroyed, group: Group, numbers: list[int], restored: dict[tuple[str, int], list[int]]
) -> None:
    orders = next(iter(left.topics))
    whole = {number for (topic, _), numbers in restored.items() if topic == orders for number in numbers}
    before = set(left.backed_up[group.name])
    assert whole <= before | set(numbers), f"{group.name} skipped records"
    assert set(numbers) == whole - before, f"{group.name} read again what it had read before the backup"
    assert len(set(numbers)) == len(numbers)


def applications_go_on(left: Destroyed, client: dict[str, str], restored: dict[tuple[str, int], list[int]]) -> None:
    """Producers write into the new cluster by their old transactional ids, and each group reads all of it."""
    orders, writers = next(iter(left.topics)), Writers(client, left.topics, left.numbers)
    for _ in range(2):
        writers.round()
    written = set()
    for place, rows in writers.acknowledged.items():
        following = [number_of(rows[offset]) for offset in sorted(rows)]
        assert numbers_in(client, *place, isolation="read_committed") == restored[place] + following
        written |= set(following) if place[0] == orders else set()
    for group in left.groups:
        assert set(group.goes_on(client, orders, 2)) == written
