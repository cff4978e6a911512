"""A gap that a person accepts: before it every reader fails there, after it every reader goes on behind it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.scenarios.house import House, eventually
from tierstate.consumer.tiered_consumer import TieredConsumer
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

RECORDS = 1_500
CONSUMER = {"group.id": "gap", "auto.offset.reset": "error", "enable.auto.commit": False, "log_level": 0}
SPARK = """
import json, sys
from tierstate.spark.sessions import local_session
options = json.loads(sys.argv[1])
with local_session("gap", 2, memory="512m") as spark:
    rows = spark.read.format("tierstate").options(**options).load().select("offset").collect()
    print(json.dumps(sorted(row.offset for row in rows)))
"""


@dataclass
class Gap:
    """Records 0 to 2,999, of which ``first`` to ``last`` were deleted on the broker before they were copied."""

    house: House
    topic: str
    first: int
    last: int

    @property
    def left(self) -> list[int]:
        return [*range(self.first), *range(self.last + 1, 2 * RECORDS)]

    @property
    def skipped(self) -> list[dict[str, int]]:
        return [{"partition": 0, "start": self.first, "end": self.last + 1}]

    def accept(self, *flags: str, code: int = 0) -> str:
        offset_flags = ("--from", str(self.first), "--to", str(self.last))
        done = self.house.run("accept-gap", f"{self.topic}:0", *offset_flags, *flags, code=code)
        return done.stdout + done.stderr

    def consumed(self, *flags: str) -> list[int]:
        done = self.house.run("consume", f"{self.topic}:0", "--format", "%o\\n", *flags)
        return [int(each) for each in done.stdout.split()]


@pytest.fixture(scope="module")
def gap(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gap]:
    house = House(kafka, tmp_path_factory.mktemp("gap") / "house", "accepted-gap")
    try:
        house.run("init")
        topic = house.create("t")
        house.append(topic, RECORDS)
        house.run("agent", "--once")
        eventually(lambda: len(house.logs(topic)) == 1)
        copied: int = house.json("describe", f"{topic}:0")[0]["highest_remote_offset"]
        house.append(topic, RECORDS, first=RECORDS)
        cut = int(house.logs(topic)[-1].stem)
        assert cut > copied + 1, "nothing was rolled and not copied"
        admin: Any = AdminClient({**house.kafka.client_config, "log_level": 0})
        place = TopicPartition(topic, 0, cut)
        admin.delete_records([place])[place].result(30)
        yield Gap(house, topic, copied + 1, cut - 1)
    finally:
        house.close()


def through_proxy(gap: Gap) -> list[int]:
    """Read from the earliest offset with Kafka's own client, without commits: a group's offset would hold the trim."""
    running, address = gap.house.proxy()
    with closing(Consumer({**CONSUMER, "bootstrap.servers": address})) as consumer:
        offsets = all_of(consumer, gap.topic, len(gap.left))
    running.stop()
    return offsets


def through_our_consumer(gap: Gap, records: int) -> list[int]:
    ours = {"tierstate.store.url": gap.house.store.as_uri(), "tierstate.tier_state.topic": gap.house.tier_topic}
    with TieredConsumer({**CONSUMER, **gap.house.kafka.client_config, **ours}) as consumer:
        return all_of(consumer, gap.topic, records)


def all_of(consumer: Any, topic: str, records: int) -> list[int]:
    consumer.assign([TopicPartition(topic, 0, 0)])
    offsets: list[int] = []

    def all_here() -> bool:
        for message in consumer.consume(1000, 1.0):
            assert message.error() is None, message.error()
            offsets.append(message.offset())
        return len(offsets) >= records

    eventually(all_here)
    return offsets


def test_readers_go_on_behind_a_gap_once_a_person_has_accepted_it(gap: Gap) -> None:
    house, topic = gap.house, gap.topic
    house.run("consume", f"{topic}:0", code=4)
    output = house.run("accept-gap", f"{topic}:0").stdout
    assert f"GAP  {gap.first}..{gap.last}" in output
    beyond = ("--from", str(gap.first - 1), "--to", str(gap.last), "--reason", "cut", "--execute")
    assert "not all of these offsets are missing" in house.run("accept-gap", f"{topic}:0", *beyond, code=2).stderr
    assert "nothing was done" in gap.accept("--reason", "cut on the broker")
    house.run("consume", f"{topic}:0", code=4)
    gap.accept("--reason", "cut on the broker", "--execute")

    assert gap.consumed() == gap.left
    assert gap.consumed("--from", str(gap.first + 1)) == list(range(gap.last + 1, 2 * RECORDS))
    described = house.run("describe", topic).stdout
    assert f"ACCEPTED GAP  {gap.first}..{gap.last}" in described
    assert "  GAP  " not in described
    verified = house.run("verify", topic, "--level", "3", code=1).stdout  # it finds the cut
    assert f"offsets {gap.first}..{gap.last} are lost" in verified
    running, url = house.gateway()
    ways = (("--via", "reader"), ("--via", "consumer"), ("--via", "gateway", "--gateway", url))
    counted = {house.digests(topic, *way)[0][1:] for way in ways}
    running.stop()
    assert {records for records, _ in counted} == {len(gap.left)}
    assert len(counted) == 1
    assert through_proxy(gap) == through_our_consumer(gap, len(gap.left)) == gap.left


@pytest.mark.spark
def test_spark_goes_on_behind_an_accepted_gap(gap: Gap) -> None:
    if not accepted(gap):
        gap.accept("--reason", "cut on the broker", "--execute")
    options = {f"kafka.{name}": value for name, value in gap.house.kafka.client_config.items()} | {
        "tierstate.store": gap.house.store.as_uri(),
        "tierstate.tier_state_topic": gap.house.tier_topic,
        "startingOffsets": "earliest",
        "subscribe": gap.topic,
    }
    done = subprocess.run(
        [sys.executable, "-c", SPARK, json.dumps(options)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == gap.left


def test_an_export_and_a_table_go_on_behind_an_accepted_gap_and_name_it(gap: Gap, tmp_path: Path) -> None:
    house, topic = gap.house, gap.topic
    if not accepted(gap):
        gap.accept("--reason", "cut on the broker", "--execute")
    counted = house.json("digest", topic)
    assert counted["skipped"] == gap.skipped
    running, url = house.gateway()
    assert house.json("digest", topic, "--gateway", url)["skipped"] == gap.skipped
    for name, flags in {"own": (), "gateway": ("--gateway", url)}.items():
        into = (tmp_path / name).as_uri()
        command = ("export", topic, "--into", into, *flags)
        assert house.json(*command, "--dry-run")["skipped"] == gap.skipped
        done = house.json(*command)
        assert (done["records"], done["skipped"]) == (len(gap.left), gap.skipped)
        [manifest] = (tmp_path / name).rglob("*manifest.json")
        assert json.loads(manifest.read_text())["skipped"] == [[0, gap.first, gap.last + 1]]
        again = house.run(*command)
        assert f"{gap.first}..{gap.last} is lost and was skipped" in again.stderr
        house.run(*command, "--check")
    running.stop()

    catalog = ("--set", f"table.folder={tmp_path}")
    [made] = house.json("table", "create", topic, *catalog)
    [followed] = house.json("table", "follow", "--once", made["table"], "--local", *catalog)
    assert (followed["rows"], followed["missed_offsets"]) == (len(gap.left), gap.last + 1 - gap.first)
    held = house.json("table", "check", made["table"], "--local", *catalog)
    assert (held["findings"], held["skipped"]) == ([], gap.skipped)
    assert held["partitions"][0]["digest"] == counted["partitions"][0]["digest"]
    [row] = house.json("table", "list", *catalog)
    assert (row["state"], row["skipped"]) == ("current", gap.skipped)
    assert f" 0:{gap.first}..{gap.last} " in house.run("table", "list", *catalog).stdout


def accepted(gap: Gap) -> bool:
    return bool(gap.house.json("accept-gap", f"{gap.topic}:0")["accepted"])


def test_an_agent_copies_and_trims_behind_an_accepted_gap_and_a_person_may_withdraw_it(gap: Gap) -> None:
    house, topic = gap.house, gap.topic
    if not accepted(gap):
        gap.accept("--reason", "cut on the broker", "--execute")
    house.append(topic, RECORDS, first=2 * RECORDS)
    house.run("agent", "--once")
    eventually(lambda: len(house.logs(topic)) == 1)
    everything = [*gap.left, *range(2 * RECORDS, 3 * RECORDS)]
    assert gap.consumed() == through_our_consumer(gap, len(everything)) == everything
    gap.accept("--withdraw", "--execute")
    house.run("consume", f"{topic}:0", code=4)
    house.run("verify", topic, code=4)
