"""A Kafka Streams application whose table is restored through the proxy from records that the broker deleted."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.consumer.tiered_cluster import TieredCluster
from tests.proxy.java_programs import java_program
from tests.proxy.running import running
from tests.servers.java_clients import kafka_streams
from tierstate.sandbox.artifacts import kafka_libs
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(280)]
RECORDS = 400


def table(bootstrap: str, topic: str, state: Path) -> tuple[int, int, str]:
    """Run an application without state on disk; return restored records, keys, and the table's digest."""
    program = java_program("Table", kafka_streams(), kafka_libs())
    arguments = [bootstrap, topic, topic, str(state), str(RECORDS), "table"]
    done = subprocess.run([*program, *arguments], capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr[-3000:]
    restored, keys, digest = done.stdout.split()[-3:]
    return int(restored), int(keys), digest


def test_a_table_is_restored_from_the_remote_tier_as_it_was_before_the_trim(
    kafka: KafkaSandbox, tmp_path: Path
) -> None:
    cluster = TieredCluster(kafka, tmp_path / "cluster", "_tier-state-streams")
    topic = cluster.topic("table", RECORDS)
    restored, keys, before = table(kafka.bootstrap, topic, tmp_path / "first")
    assert (restored, keys) == (0, RECORDS)  # it read them, and committed them in its group
    assert cluster.copy_and_trim(topic)[0] > RECORDS // 2
    with running(cluster) as proxy:
        restored, keys, after = table(proxy.bootstrap, topic, tmp_path / "again")
    assert (restored, keys, after) == (RECORDS, RECORDS, before)
