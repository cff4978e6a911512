"""Topics of records, of JSON and of Avro in both tiers, and the folders of their exports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer

from tests.lake.typed_logs import json_order, poisoned
from tests.scenarios.house import House, run
from tierstate.log.record_columns import record_schema
from tierstate.log.record_digest import RecordDigest

RECORDS = 3_000
TYPED = 1_500
"""The number of records of the topics whose values mean something."""
ORDERS = poisoned([json_order(number) for number in range(TYPED)])


@dataclass
class Lake:
    """A topic of two partitions in both tiers, and folders for its exports."""

    house: House
    topic: str
    folder: Path
    orders: str
    """A topic of JSON, some of it broken (`typed_logs.poisoned`)."""
    avro: str
    """A topic of Avro, by schema 1 of a registry."""

    def place(self, name: str) -> tuple[Path, str]:
        return self.folder / name, (self.folder / name).as_uri()

    def export(self, into: str, *flags: str, code: int = 0, topic: str = "") -> Any:
        done = self.house.run("export", topic or self.topic, "--into", into, *flags, "--json", code=code)
        return json.loads(done.stdout) if code == 0 else json.loads(done.stderr.splitlines()[-1])

    def rows(self, folder: Path, topic: str = "") -> pa.Table:
        return pq.read_table(sorted((folder / (topic or self.topic)).rglob("*.parquet")), partitioning=None)

    def digests(self, folder: Path) -> list[tuple[int, int, str]]:
        """Return the digests of the files, in the form of `House.digests`."""
        digests_read = []
        rows = self.rows(folder).sort_by([("partition", "ascending"), ("offset", "ascending")])
        for number in sorted(set(rows["partition"].to_pylist())):
            digest = RecordDigest()
            digest.update(rows.filter(pa.compute.equal(rows["partition"], number)).cast(record_schema()))
            digests_read.append((number, digest.count, digest.hexdigest()))
        return digests_read


def remote_ends(house: House, topic: str, *flags: str) -> list[int]:
    """Return the remote end of each partition; none while the bucket knows nothing of it."""
    done = run("describe", topic, *flags, "--json", "--config", str(house.config))
    return [] if done.returncode else [each["highest_remote_offset"] for each in json.loads(done.stdout)]


def produce(house: House, topic: str, values: Sequence[bytes | None]) -> None:
    producer: Any = Producer({**house.kafka.client_config, "log_level": 0, "batch.size": 10_000})
    for number, value in enumerate(values):
        producer.produce(topic, value=value, key=b"k%d" % (number % 7), headers=[("at", b"%d" % number)])
        producer.poll(0)
    assert producer.flush(60) == 0


def objects(place: Path) -> dict[str, bytes]:
    files = (each for each in place.rglob("*") if each.is_file() and ".tierstate-tmp" not in each.parts)
    return {str(each.relative_to(place)): each.read_bytes() for each in files}
