"""A house with tables of its topics: `tierstate table`, and the table as readers of Iceberg see it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from tests.scenarios.house import House

RECORDS = 2_000


@dataclass
class Tables:
    """Topics of two partitions in both tiers, and a folder for tables."""

    house: House
    folder: Path

    def table(self, name: str) -> Table:
        """Open the table as any reader of Iceberg does."""
        catalog = load_catalog("tierstate", type="sql", uri=f"sqlite:///{self.folder}/catalog.db")
        return catalog.load_table(name)

    def rows(self, name: str) -> int:
        return self.table(name).scan().count()

    def follow(self, *flags: str, code: int = 0) -> list[dict[str, Any]]:
        rounds: list[dict[str, Any]] = json.loads(
            self.house.run("table", "follow", "--once", *flags, "--json", code=code).stdout
        )
        return rounds

    def check(self, name: str, *flags: str, code: int = 0) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.house.run("table", "check", name, *flags, "--json", code=code).stdout)
        return report

    def checked(self, name: str, *flags: str) -> list[tuple[int, int, str]]:
        """Check the table; return its digests in the form of `House.digests`."""
        report = self.check(name, *flags)
        assert report["findings"] == []
        return [(each["partition"], each["rows"], each["digest"]) for each in report["partitions"]]

    def create(self, topic: str, *flags: str) -> str:
        [made] = json.loads(self.house.run("table", "create", topic, *flags, "--json").stdout)
        return str(made["table"])


def made(tables: Tables, name: str, partitions: int = 2) -> str:
    topic = tables.house.create(name, partitions)
    for partition in range(partitions):
        tables.house.append(topic, RECORDS, partition)
    return topic


def all_copied(tables: Tables, topic: str) -> bool:
    return all(each["local_log_start_offset"] > 0 for each in tables.house.json("describe", topic))


def produced(tables: Tables, topic: str, values: list[bytes | None]) -> None:
    config = {**tables.house.kafka.client_config, "log_level": 0, "enable.idempotence": True}
    producer: Any = Producer(config)
    for value in values:
        producer.produce(topic, value=value, key=b"k", partition=0)
    assert producer.flush(60) == 0


def listed(tables: Tables, name: str) -> dict[str, Any]:
    return next(each for each in tables.house.json("table", "list") if each["table"] == name)


def path_of(url: str) -> Path:
    return Path(url.removeprefix("file://"))
