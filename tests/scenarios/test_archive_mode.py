"""An archive: nothing is trimmed, Kafka deletes by its own retention, and the remote tier by tierstate's settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from tests.consumer.tiered_cluster import TieredCluster, polled, until
from tierstate.cli.main import run
from tierstate.consumer.tiered_consumer import TieredConsumer
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
ARCHIVE = ("--set", "trim.enabled=false")


def configure(cluster: TieredCluster, topic: str, **config: str) -> None:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    for name, value in config.items():
        entry = ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        resource.add_incremental_config(entry)
    cluster.admin.incremental_alter_configs([resource])[resource].result(30)


def described(cluster: TieredCluster, topic: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    run(["describe", topic, "--json", "--config", str(cluster.settings_file)])
    (facts,) = json.loads(capsys.readouterr().out)
    return dict(facts)


def offsets_read(cluster: TieredCluster, topic: str, count: int, group: str) -> Sequence[int]:
    with closing(TieredConsumer(cluster.config(group, auto_offset_reset="earliest"))) as consumer:
        consumer.subscribe([topic])
        return [each.offset() for each in polled(consumer, count, 100)]


def test_an_archive_keeps_what_kafka_forgot_until_its_own_retention(
    kafka: KafkaSandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = TieredCluster(kafka, tmp_path, "_tier-state-archive")
    topic = cluster.topic("kept")
    cluster.run("agent", "--once", *ARCHIVE)
    assert cluster.local_start(topic) == 0, "an archive trims nothing, though local.retention.bytes would"
    configure(cluster, topic, retention_bytes="16384")
    until(lambda: cluster.local_start(topic) > 100, lambda: None)
    for _ in range(2):
        cluster.run("agent", "--once", *ARCHIVE)
    facts = described(cluster, topic, capsys)
    assert facts["log_start_offset"] == 0
    assert facts["gaps"] == []
    assert offsets_read(cluster, topic, 400, "archive") == list(range(400))

    cluster.run("agent", "--once", *ARCHIVE, "--set", f"expire.topics={topic}=1s", "--set", "expire.grace=0s")
    start = described(cluster, topic, capsys)["log_start_offset"]
    assert start > 0
    assert offsets_read(cluster, topic, 400 - start, "afterwards") == list(range(start, 400))


def test_a_retention_of_the_remote_tier_is_refused_where_the_local_tier_is_trimmed(
    kafka: KafkaSandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = TieredCluster(kafka, tmp_path, "_tier-state-both")
    assert run(["agent", "--once", "--config", str(cluster.settings_file), "--set", "expire.retention=7y"]) != 0
    assert "need trim.enabled = false" in capsys.readouterr().err
