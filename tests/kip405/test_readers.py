"""Every reader, on a topic that Kafka tiered. Its brokers cannot read a remote record: their own copies are removed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

import tierstate
from tests.kip405.kafkas_tiers import KafkasTiers, kafkas_tiers, plainly, transactions
from tierstate.broker.plain_reads import PlainConsumer
from tierstate.consumer.tiered_consumer import TieredConsumer
from tierstate.runtime.clock import SystemClock
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.routing import Isolation

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
TOPIC = "orders"
Row = tuple[int, bytes | None, bytes | None]


@dataclass
class Tiered:
    """``records``: offset, key and value by isolation level, as Kafka's consumer read them."""

    tiers: KafkasTiers
    records: dict[Isolation, list[Row]]
    local_start: int


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    with kafkas_tiers(tmp_path_factory.mktemp("readers")) as tiers:
        tiers.topic(TOPIC)
        plainly(tiers.kafka, TOPIC, count=400)
        steps = [("a", "begin"), ("a", "write"), ("b", "begin"), ("b", "write"), ("b", "commit")]
        transactions(tiers.kafka, TOPIC, steps)
        plainly(tiers.kafka, TOPIC, count=300)
        transactions(tiers.kafka, TOPIC, [("a", "begin"), ("a", "abort")])  # the first one is aborted by this, too
        local_start = tiers.offloaded(TOPIC, segments=6)
        records = {each: by_kafka(tiers.kafka.bootstrap, each) for each in Isolation}
        assert len(records[Isolation.READ_COMMITTED]) < len(records[Isolation.READ_UNCOMMITTED])
        shutil.rmtree(tiers.files)
        yield Tiered(tiers, records, local_start)


def by_kafka(bootstrap: str, isolation: Isolation) -> list[Row]:
    with closing(PlainConsumer({"bootstrap.servers": bootstrap}, isolation, SystemClock())) as consumer:
        bounds = consumer.bounds(TOPIC, 0)
        return [(each.offset, each.key, each.value) for batch in consumer.records(TOPIC, 0, *bounds) for each in batch]


@contextmanager
def serving(tiered: Tiered, command: str) -> Iterator[str]:
    """Run a service in a process of its own, and yield its address."""
    line = [sys.executable, "-m", "tierstate.cli.main", command, "--listen", "127.0.0.1:0", "--json"]
    line += ["--config", str(tiered.tiers.settings_file), "--set", "management.listen=127.0.0.1:0"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["address"]
        finally:
            process.terminate()


@pytest.mark.parametrize("isolation", list(Isolation))
def test_kafka_clients_read_both_tiers_through_the_proxy(tiered: Tiered, isolation: Isolation) -> None:
    with serving(tiered, "proxy") as address:
        assert by_kafka(address, isolation) == tiered.records[isolation]


def test_a_broker_alone_cannot_read_the_remote_records(tiered: Tiered) -> None:
    """The other tests would prove nothing if this one failed."""
    config = {**tiered.tiers.kafka.client_config, "group.id": "alone", "auto.offset.reset": "error"}
    with closing(Consumer({**config, "log_level": 0})) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        assert not [each for each in consumer.consume(10, 3.0) if each.error() is None]


def test_the_proxy_asks_the_broker_for_times_and_starts(tiered: Tiered) -> None:
    with serving(tiered, "proxy") as address:
        config = {"bootstrap.servers": address, "group.id": "bounds"}
        with closing(Consumer(config)) as consumer:
            assert consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), 20)[0] == 0


@pytest.mark.parametrize("isolation", list(Isolation))
def test_the_gateway_serves_both_tiers(tiered: Tiered, isolation: Isolation) -> None:
    with serving(tiered, "gateway") as address, httpx.Client(base_url=address, timeout=60) as client:
        rows, offset = list[Row](), 0
        while True:
            answer = client.get(
                f"/v1/topics/{TOPIC}/partitions/0/records",
                params={"offset": offset, "isolation_level": str(isolation), "encoding": "base64"},
                headers={"accept": "application/x-ndjson"},
            )
            assert answer.status_code == 200, answer.text
            rows += [row_of(json.loads(line)) for line in answer.text.splitlines()]
            if (following := int(answer.headers["x-next-offset"])) == offset:
                break
            offset = following
        assert rows == tiered.records[isolation]
        described = client.get(f"/v1/topics/{TOPIC}/partitions/0").json()
        assert (described["log_start_offset"], described["local_log_start_offset"]) == (0, tiered.local_start)
        assert described["remote_records"] is None
        segments = client.get(f"/v1/topics/{TOPIC}/partitions/0/segments").json()["segments"]
        assert segments[0]["record_count"] is None
        assert client.get("/v1/topics").json()["topics"][0]["topic"] == TOPIC


def row_of(record: dict[str, Any]) -> Row:
    key, value = (None if record[name] is None else b64decode(record[name]) for name in ("key", "value"))
    return record["offset"], key, value


@pytest.mark.parametrize("mode", ["kafka_preferred", "tiered_storage_preferred"])
def test_the_python_consumer_reads_both_tiers(tiered: Tiered, mode: str) -> None:
    expected = tiered.records[Isolation.READ_COMMITTED]
    config = {
        **tiered.tiers.kafka.client_config,
        "group.id": f"consumer-{mode}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "tiered.mode": mode,
        "tierstate.store.url": tiered.tiers.bucket.as_uri(),
        "tierstate.view.source": "kip405",
    }
    rows = list[Row]()
    with closing(TieredConsumer(config)) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        while len(rows) < len(expected):
            for message in consumer.consume(500, 5.0):
                assert message.error() is None, message.error()
                rows.append((message.offset(), message.key(), message.value()))
    assert rows == expected


def test_python_reads_a_table_of_both_tiers(tiered: Tiered) -> None:
    bootstrap, store = tiered.tiers.kafka.bootstrap, tiered.tiers.bucket.as_uri()
    with tierstate.connect(bootstrap=bootstrap, store=store, source="kip405") as log:
        table = pa.table(log.topic(TOPIC).read(columns=["offset", "key", "value"]))
    rows = list(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
    assert rows == tiered.records[Isolation.READ_COMMITTED]


def test_an_export_is_the_log_row_by_row(tiered: Tiered, tmp_path_factory: pytest.TempPathFactory) -> None:
    target = tmp_path_factory.mktemp("export").as_uri()
    tiered.tiers.run("export", TOPIC, "--into", target, "--execute")
    tiered.tiers.run("export", TOPIC, "--into", target, "--check")


def test_verify_finds_nothing_wrong_and_then_each_damage(tiered: Tiered) -> None:
    tiers = tiered.tiers
    segments = tiers.finished(TOPIC)

    def findings(level: int) -> list[tuple[int, str, str]]:
        answer = tiers.run("verify", TOPIC, "--level", str(level), fails=None)
        return [(each["level"], each["severity"], each["what"]) for each in answer["findings"]]

    assert findings(3) == []
    log = tiers.bucket / object_key(tiers.base_key(segments[1]), ObjectKind.LOG)
    manifest = tiers.bucket / object_key(tiers.base_key(segments[2]), ObjectKind.MANIFEST)
    orphan = manifest.with_name(manifest.name.replace(str(segments[2].segment_id), "A" * 22))
    bytes_, text = log.read_bytes(), manifest.read_bytes()
    with ExitStack() as mended:
        mended.callback(log.write_bytes, bytes_)
        mended.callback(manifest.write_bytes, text)
        mended.callback(orphan.unlink)
        log.write_bytes(bytes_[:500] + bytes([bytes_[500] ^ 1]) + bytes_[501:])
        manifest.unlink()
        orphan.write_bytes(text)
        assert [each[:2] for each in findings(1)] == [(1, "corrupt"), (1, "finding")]
        deep = findings(3)
        assert (3, "corrupt") in [each[:2] for each in deep]
        assert any("CRC" in what for _, _, what in deep)
        lost = segments[2].offsets
        with tiers.connection() as connection:
            pieces = connection.reader(connection.view()).scan(TOPIC, 0, lost.start, lost.end + 1)
            with pytest.raises(tierstate.errors.CorruptData):
                list(pieces)
