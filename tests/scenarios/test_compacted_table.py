"""Compacted topics as tables, while Kafka's cleaner runs: the rows are the fold of all that was ever written."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.broker.beheading import alter
from tests.scenarios.house import House, eventually
from tests.scenarios.tables import Tables, all_copied
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka
KEPT_S = 10.0
"""How long the cleaner keeps tombstones: the shortest time that a table accepts."""
RESTLESS = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0.001",
    "max_compaction_lag_ms": "200",
    "internal_segment_bytes": "10000",
    "segment_ms": "200",
    "delete_retention_ms": str(int(KEPT_S * 1000)),
}


@dataclass
class Keys:
    """A topic of few keys whose cleaner never rests, and all that was ever written to it."""

    tables: Tables
    topic: str
    written: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    random: Random = field(default_factory=lambda: Random(7))

    def write(self, *records: tuple[bytes, bytes | None]) -> None:
        config = {**self.tables.house.kafka.client_config, "log_level": 0, "enable.idempotence": True}
        producer: Any = Producer(config | {"batch.size": 4_000})
        for key, value in records:
            producer.produce(self.topic, value=value, key=key, partition=0)
        assert producer.flush(60) == 0
        self.written += records

    def some(self, count: int, keys: int = 40) -> list[tuple[bytes, bytes | None]]:
        return [
            (b"k%d" % self.random.randrange(keys), None if self.random.random() < 0.3 else b"%060d" % number)
            for number in range(count)
        ]

    def fold(self, end: int | None = None) -> dict[int, tuple[bytes, bytes]]:
        """Return offset, key and value of each row, by all that was written below ``end``."""
        newest = {key: (at, value) for at, (key, value) in enumerate(self.written[:end])}
        return {at: (key, value) for key, (at, value) in newest.items() if value is not None}

    def rows(self, name: str) -> dict[int, tuple[bytes, bytes]]:
        rows = self.tables.table(name).scan().to_arrow().to_pylist()
        assert len({row["offset"] for row in rows}) == len(rows)
        return {row["offset"]: (row["key"], row["value"]) for row in rows}

    def left(self) -> set[int]:
        """Return the offsets that the log still has."""
        client = Consumer(
            {**self.tables.house.kafka.client_config, "group.id": "left", "auto.offset.reset": "earliest"}
        )
        place = TopicPartition(self.topic, 0, 0)
        try:
            client.assign([place])
            end, offsets = client.get_watermark_offsets(place, timeout=30)[1], set[int]()
            while not offsets or max(offsets) < end - 1:
                offsets |= {message.offset() for message in client.consume(500, 1.0)}
            return offsets
        finally:
            client.close()

    def cleaned(self, *offsets: int) -> None:
        """Write until the cleaner has removed these records."""

        def gone() -> bool:
            self.write(*[(b"filler", b"%0200d" % at) for at in range(60)])
            return self.left().isdisjoint(offsets)

        eventually(gone)

    def reach(self, name: str) -> int:
        snapshot = self.tables.table(name).current_snapshot()
        offsets = None if snapshot is None or snapshot.summary is None else snapshot.summary["tierstate.offsets"]
        return int(json.loads(offsets or "{}").get("0", 0))

    def set(self, name: str, value: str) -> None:
        admin: Any = AdminClient({**self.tables.house.kafka.client_config, "log_level": 0})
        alter(admin, self.topic, name, value)


@pytest.fixture(scope="module")
def tables(kafka_own: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    folder = tmp_path_factory.mktemp("compacted")
    house = House(kafka_own, tmp_path_factory.mktemp("house"), "compacted")
    with house.config.open("a") as settings:
        settings.write(f'[table]\nfolder = "{folder}"\ncommit_interval = "0s"\n')
    house.run("init")
    try:
        yield Tables(house, folder)
    finally:
        house.close()


def keys_of(tables: Tables, name: str) -> Keys:
    return Keys(tables, tables.house.create(name, 1, **RESTLESS))


def test_the_rows_are_the_fold_of_all_that_was_written_although_the_cleaner_removes_it(tables: Tables) -> None:
    keys = keys_of(tables, "live")
    name = tables.create(keys.topic, "--upsert", "key")
    follower = tables.house.start("table", "follow", name)
    for _ in range(8):
        keys.write(*keys.some(300))
        eventually(lambda: keys.reach(name) >= len(keys.written) - 300)
    dead = {at for at, (_, value) in enumerate(keys.written) if value is None}
    SystemClock().sleep(KEPT_S)
    keys.cleaned(*dead)
    eventually(lambda: keys.reach(name) == len(keys.written))
    assert keys.rows(name) == keys.fold()
    assert len(keys.left()) < 300
    assert tables.check(name)["findings"] == []
    assert not [each for each in follower.events("table") if each["step"] == "lost branch"], "nothing was missed"
    assert follower.stop(signal.SIGTERM) == 0


def test_a_follower_that_was_away_for_longer_than_tombstones_stay_folds_the_log_again(tables: Tables) -> None:
    keys = keys_of(tables, "away")
    name = tables.create(keys.topic, "--upsert", "key")
    keys.write(*[(b"k%d" % at, b"1") for at in range(20)])
    tables.follow(name)
    assert keys.rows(name) == keys.fold()
    keys.write(*[(b"k%d" % at, None) for at in range(10)])
    keys.cleaned(*range(10), *range(20, 30))
    missed = tables.check(name, "--max-behind", "1000000", code=1)
    assert [each["problem"] for each in missed["findings"]] == ["10 rows are no records of the log"]
    tables.follow(name)
    assert keys.rows(name) == keys.fold()
    assert len(keys.rows(name)) == 11
    assert tables.check(name)["findings"] == []


def test_rows_whose_records_were_replaced_behind_the_table_are_no_difference(tables: Tables) -> None:
    keys = keys_of(tables, "behind")
    name = tables.create(keys.topic, "--upsert", "key")
    keys.write(*[(b"k%d" % at, b"1") for at in range(20)])
    tables.follow(name)
    keys.write(*[(b"k%d" % at, b"2") for at in range(10)])
    keys.cleaned(*range(10))
    report = tables.check(name, "--max-behind", "1000000")
    assert report["findings"] == []
    assert [(each["rows"], each["older_rows"]) for each in report["partitions"]] == [(10, 10)]


def test_followers_that_are_killed_leave_the_fold_of_the_log(tables: Tables) -> None:
    keys = keys_of(tables, "killed")
    name = tables.create(keys.topic, "--upsert", "key")
    for number in range(3):
        keys.write(*keys.some(200))
        follower = tables.house.start("table", "follow", name, "--set", f"state_dir={tables.folder / str(number)}")
        eventually(follower.out.read_text)
        SystemClock().sleep(keys.random.random())
        follower.stop(signal.SIGKILL)
        assert tables.check(name, "--max-behind", "1000000")["findings"] == []
    tables.follow(name)
    assert keys.rows(name) == keys.fold()
    assert tables.check(name)["findings"] == []


def test_a_topic_that_was_tiered_before_it_was_compacted_is_folded_from_both_tiers(tables: Tables) -> None:
    keys = Keys(tables, tables.house.create("both", internal_segment_bytes="20000"))
    keys.write(*keys.some(2_000))
    with tables.house.agent():
        eventually(lambda: all_copied(tables, keys.topic))
    keys.set("delete.retention.ms", "20000")
    keys.set("min.cleanable.dirty.ratio", "0.001")
    keys.set("cleanup.policy", "compact")
    keys.write(*keys.some(2_000))
    start = min(keys.left())
    assert start > 0
    keys.cleaned(*(at for at in range(start, 2_000) if at not in keys.fold()))
    name = tables.create(keys.topic, "--upsert", "key")
    tables.follow(name)
    assert keys.rows(name) == keys.fold()
    assert tables.check(name)["findings"] == []


def test_what_cannot_stay_equal_to_a_compacted_log_is_refused(tables: Tables, tmp_path: Path) -> None:
    keys = keys_of(tables, "refused")
    keys.write((b"k", b"1"))
    refused = tables.house.run("table", "create", keys.topic, code=2)
    assert "the table with --upsert key" in refused.stderr
    keys.set("cleanup.policy", "delete")
    name, other = tables.create(keys.topic), tables.create(keys.topic, "--name", "kafka.folded", "--upsert", "key")
    keys.set("cleanup.policy", "compact")
    assert "the table with --upsert key" in tables.house.run("table", "follow", name, "--once", code=2).stderr
    tables.follow(other)
    assert keys.rows(other) == keys.fold()
    keys.set("delete.retention.ms", "100")
    assert "set the topic's delete.retention.ms higher" in tables.house.run("table", "check", other, code=2).stderr
