"""Kafka Connect's workers, as their scripts start them, with the proxy in their settings: a sink, and MirrorMaker."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.consumer.tiered_cluster import TieredCluster
from tests.proxy.java_programs import java
from tests.proxy.running import running
from tests.scenarios.house import eventually
from tests.servers.java_clients import kafka_connect
from tierstate.broker.plain_reads import PlainConsumer, PlainRecord
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.artifacts import kafka_libs
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import BrokerUnavailable
from tierstate.state.routing import Isolation

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(280)]
RECORDS = 1_000
PARTITIONS = 2
PATIENCE_S = 120.0
INTERNAL = ("offset-syncs.topic", "checkpoints.topic", "config.storage", "offset.storage", "status.storage")
"""Topics that MirrorMaker makes for itself."""


@pytest.fixture(scope="module")
def cluster(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> TieredCluster:
    return TieredCluster(kafka, tmp_path_factory.mktemp("connect"), "_tier-state-connect")


@contextmanager
def worker(main: str, folder: Path, *properties: Mapping[str, object]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker that is killed when the block ends; its output is in the folder."""
    files = [folder / f"{number}.properties" for number in range(len(properties))]
    for file, each in zip(files, properties, strict=True):
        file.write_text("".join(f"{name}={value}\n" for name, value in each.items()))
    command = [*java(f"org.apache.kafka.connect.{main}", kafka_connect(), kafka_libs()), *map(str, files)]
    with (
        (folder / "worker.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def records(kafka: KafkaSandbox, topic: str) -> list[list[PlainRecord]]:
    """Return the records of each partition; none while there is no such topic."""
    records_read: list[list[PlainRecord]] = []
    with closing(PlainConsumer(kafka.client_config, Isolation.READ_COMMITTED, SystemClock())) as consumer:
        for number in range(PARTITIONS):
            try:
                start, end = consumer.bounds(topic, number)
            except BrokerUnavailable:
                return []
            records_read.append([each for batch in consumer.records(topic, number, start, end) for each in batch])
    return records_read


def test_a_sink_writes_each_record_of_both_tiers_once_and_in_order(cluster: TieredCluster, tmp_path: Path) -> None:
    topic, _ = cluster.tiered("sunk", RECORDS)
    written = tmp_path / "written"
    sink = {
        "name": topic,
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "topics": topic,
        "file": written,
    }
    with running(cluster) as proxy:
        standalone = {
            "bootstrap.servers": proxy.bootstrap,
            "listeners": "http://127.0.0.1:0",
            "offset.storage.file.filename": tmp_path / "offsets",
            **{f"{what}.converter": "org.apache.kafka.connect.storage.StringConverter" for what in ("key", "value")},
        }
        with worker("cli.ConnectStandalone", tmp_path, standalone, sink) as process:
            eventually(lambda: process.poll() is not None or len(lines(written)) >= RECORDS, PATIENCE_S)
    assert lines(written) == [f"0/{number} ".ljust(200, ".") for number in range(RECORDS)]


def test_mirrormaker_makes_of_both_tiers_another_clusters_topic(cluster: TieredCluster, tmp_path: Path) -> None:
    """Each record has its offset, key, timestamp and headers."""
    topic = cluster.topic("mirrored", RECORDS, PARTITIONS)
    whole = records(cluster.kafka, topic)
    assert [len(each) for each in whole] == [RECORDS] * PARTITIONS
    assert min(cluster.copy_and_trim(topic, PARTITIONS)) > RECORDS // 2
    with running(cluster) as proxy, KafkaSandbox() as other:
        mirror = {
            "clusters": "here, there",
            "here.bootstrap.servers": proxy.bootstrap,
            "there.bootstrap.servers": other.bootstrap,
            "here->there.enabled": "true",
            "here->there.topics": topic,
            "emit.heartbeats.enabled": "false",
            "sync.topic.acls.enabled": "false",
            "offset-syncs.topic.location": "target",
            "replication.factor": "1",
            **{f"{what}.replication.factor": "1" for what in INTERNAL},
        }
        with worker("mirror.MirrorMaker", tmp_path, mirror) as process:
            eventually(lambda: process.poll() is not None or records(other, f"here.{topic}") == whole, PATIENCE_S)
        assert records(other, f"here.{topic}") == whole
